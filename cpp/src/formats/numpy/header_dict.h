#pragma once

#include <string_view>

#include "weightstore/tensor.h"

namespace weightstore::numpy {

// {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
struct HeaderDict {
  std::string_view descr;  // the type's text, inside the header
  bool is_fortran = false;
  Shape shape;
};

// Takes exactly what numpy writes: the three keys, each once, in any order, and spaces. Throws kCorrupt, kLimit for
// more than `max_rank` dimensions, and kUnsupported when the type is not a text but a structure.
HeaderDict parse_header_dict(std::string_view text, std::uint64_t max_rank);

}  // namespace weightstore::numpy
