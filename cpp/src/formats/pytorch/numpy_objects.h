#pragma once

// Arrays, numbers and types of numpy inside a pickle.

#include <cstdint>
#include <optional>
#include <string>

#include "formats/numpy/element_type.h"
#include "formats/pytorch/container.h"
#include "weightstore/value.h"

namespace weightstore::pytorch {

// The type that numpy.dtype makes, as numpy writes it: "<f4". Unknown types as the file has them, cut when long.
std::string numpy_type_name(const PickleTree& tree, Node type);

// A number of numpy, as a number; a complex one as a list of two. nullopt when it is text, a date or something else.
std::optional<Value> numpy_number(const PickleTree& tree, Node scalar);

bool is_array(const PickleTree& tree, Node node);

// An array whose elements the pickle holds.
struct PickledArray {
  explicit PickledArray(MemoryBudget& memory) : shape(memory), elements(memory) {}

  DType dtype = DType::kU8;
  ChargedVector<std::uint64_t> shape;
  ChargedString elements;  // in row-major order and the byte order of this machine
};

// Reads the array at `node`, for which is_array() holds. Time and memory are proportional to what the pickle spends on
// the elements, and charged to the budget of the tree. Throws kUnsupported for arrays of objects, text, dates and
// other types that tensors do not have, kCorrupt for arguments that make no array, kLimit.
PickledArray read_array(const PickleTree& tree, Node node, const Limits& limits);

}  // namespace weightstore::pytorch
