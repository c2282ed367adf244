#pragma once

// A strided selection of a row-major array.

#include <cstdint>
#include <span>

#include "weightstore/byte_source.h"
#include "weightstore/reader.h"
#include "weightstore/tensor.h"

namespace weightstore {

// Bytes of the selection. Throws Error(kInvalidArgument) when `dims` does not fit the shape, or when it cuts through
// bytes (elements smaller than a byte are only selected by whole rows).
std::uint64_t slice_bytes(DType dtype, const Shape& shape, std::span<const SliceDim> dims);

// Reads the selection into `out` in row-major order. The tensor lies in `source` from `begin` on. Where selected
// elements lie close together, the gaps between them are read, too. Throws Error(kInvalidArgument) as slice_bytes()
// does and when `out` has another size, and what the source throws.
void read_slice(DType dtype, const Shape& shape, std::span<const SliceDim> dims, const ByteSource& source,
                std::uint64_t begin, MutableBytes out);

}  // namespace weightstore
