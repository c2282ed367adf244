// The mutator of bare pickles.

#include <utility>

#include "pickle_mutations.h"

namespace mutations {

std::string mutate_file(Random& random, std::string pickle, std::size_t max_size) {
  return random.one_in(8) ? mutate_or_repeat(random, std::move(pickle), max_size)
                          : mutate_pickle(random, std::move(pickle), max_size);
}

}  // namespace mutations
