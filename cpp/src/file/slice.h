#pragma once

// A strided selection of a row-major array, as runs of bytes.

#include <cstdint>
#include <functional>
#include <span>

#include "weightstore/reader.h"
#include "weightstore/tensor.h"

namespace weightstore {

// Bytes of the selection. Throws Error(kInvalidArgument) when `dims` does not fit the shape, or when it cuts through
// bytes (elements smaller than a byte are only selected by whole rows).
std::uint64_t slice_bytes(DType dtype, const Shape& shape, std::span<const SliceDim> dims);

// Reads the selection into `out` in row-major order. `read(offset, out)` fetches bytes of the tensor; it is called with
// ranges that cover what is selected and, where elements lie close together, the gaps between them.
void read_slice(DType dtype, const Shape& shape, std::span<const SliceDim> dims, MutableBytes out,
                const std::function<void(std::uint64_t, MutableBytes)>& read);

}  // namespace weightstore
