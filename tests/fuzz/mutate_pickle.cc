#include <algorithm>

#include "pickle_mutations.h"

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  mutations::Random random(seed);
  std::string pickle(reinterpret_cast<const char*>(data), size);
  const std::size_t most = std::max(size, mutations::usual_size(random, max_size));
  pickle = random.one_in(8) ? mutations::mutate_or_repeat(random, std::move(pickle), most)
                            : mutations::mutate_pickle(random, std::move(pickle), most);
  return mutations::finish(pickle, data, max_size);
}
