#pragma once

#include <cstddef>
#include <string>

#include "mutations.h"

namespace mutations {

// Changes a pickle instruction by instruction: operands, insertions, repetitions, tensors with hostile shapes. It still
// begins with its protocol and ends with STOP, and what is inserted leaves the stack as deep as it was.
std::string mutate_pickle(Random& random, std::string pickle, std::size_t max_size);

}  // namespace mutations
