// The mutator of formats without lengths and checksums.

#include <algorithm>

#include "mutations.h"

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  mutations::Random random(seed);
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t most = mutations::usual_size(random, max_size);
  return mutations::finish(mutations::mutate_or_repeat(random, bytes, std::max(size, most)), data, most);
}
