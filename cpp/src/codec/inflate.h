#pragma once

// DEFLATE (RFC 1951), for small compressed records.

#include "weightstore/byte_source.h"

namespace weightstore {

// Fills `out` with what `compressed` holds. Throws Error(kCorrupt) when that is any other number of bytes, when
// `compressed` is not well-formed, or has bytes behind its last block. Allocates nothing; how much memory a compressed
// record deserves is the caller's to decide.
void inflate(ConstBytes compressed, MutableBytes out);

}  // namespace weightstore
