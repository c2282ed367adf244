// The mutator of formats without lengths and checksums.

#include <utility>

#include "mutations.h"

namespace mutations {

std::string mutate_file(Random& random, std::string text, std::size_t max_size) {
  return mutate_or_repeat(random, std::move(text), max_size);
}

}  // namespace mutations
