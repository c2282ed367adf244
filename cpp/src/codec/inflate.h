#pragma once

// DEFLATE (RFC 1951), for small compressed records.

#include <cstddef>
#include <string>

#include "weightstore/byte_source.h"

namespace weightstore {

// The `size` bytes that `compressed` holds. Throws Error(kCorrupt) when it holds any other number of bytes, is not
// well-formed, or has bytes behind its last block. Nothing is allocated for a size that so few bytes cannot give (no
// stream grows more than 1032 times); whether `size` is acceptable is the caller's to decide.
std::string inflate(ConstBytes compressed, std::size_t size);

}  // namespace weightstore
