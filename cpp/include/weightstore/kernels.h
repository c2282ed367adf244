#pragma once

// Transposes arrays, and casts them between floating-point types: from memory to memory, on the calling thread. These
// functions are part of weightstore_formats, which needs neither threads nor files. `transform.h` does the same on
// several threads, and while a file is written.

#include <cstddef>
#include <cstdint>

#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"

namespace weightstore {

// True when both types are among F16, BF16, F32, Flex32 (which is stored as F32) and F64.
bool can_cast(DType from, DType to);

// The size of an array after a cast; `bytes` is its size before. Throws Error(kUnsupported) where can_cast() is false,
// and Error(kInvalidArgument) when `bytes` is not a multiple of the element size.
std::uint64_t cast_size(std::uint64_t bytes, DType from, DType to);

namespace kernels {

// Converts numbers from one type to another. `out` must have the size that cast_size() returns, and must not overlap
// `in`. Neither needs to be aligned. Throws as cast_size() does, and Error(kInvalidArgument) when `out` has another
// size.
//
// Rounds to the nearest number, ties to even. Overflow gives infinity. Subnormal numbers stay subnormal. A NaN keeps
// its sign and the leading bits of its payload. F64 is cast to F16 and BF16 by way of F32. PyTorch's `.to()` gives the
// same bits, except for NaNs that become BF16: PyTorch does not keep their sign and payload.
void cast(ConstBytes in, DType from, DType to, MutableBytes out);

// Writes the transpose of a row-major matrix of `rows` x `columns` elements to `out`. An element has 1, 2, 4, 8 or 16
// bytes. `out` must have the size of `in`, and must not overlap it. Neither needs to be aligned. Throws
// Error(kInvalidArgument) when the sizes do not fit, and Error(kUnsupported) for other element sizes.
void transpose(ConstBytes in, std::size_t item_bytes, std::uint64_t rows, std::uint64_t columns, MutableBytes out);

}  // namespace kernels
}  // namespace weightstore
