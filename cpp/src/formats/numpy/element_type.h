#pragma once

#include <string_view>

#include "weightstore/dtype.h"

namespace weightstore::numpy {

struct ElementType {
  DType dtype = DType::kU8;
  bool is_swapped = false;  // of the other byte order than this machine's
};

// What `descr` stands for: a byte order ('<', '>', '|' or '='), a kind and a size, such as "<f4". Throws kUnsupported
// for everything that is not a number or a boolean of a size that tensors have, naming it.
ElementType parse_element_type(std::string_view descr);

}  // namespace weightstore::numpy
