#pragma once

// Changes to tensors on their way in or out: the transpose of a matrix, and casts between floating-point types. Each
// comes as a function from memory to memory, for reading, and as a ByteProducer over another, for writing.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "weightstore/byte_producer.h"
#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"

namespace weightstore {

// Writes the transpose of a row-major matrix of `rows` x `columns` elements of 1, 2, 4, 8 or 16 bytes to `out`, which
// has the size of `in` and does not overlap it. Neither need be aligned. `threads` of 0: as many as the machine gains
// from. Throws Error(kInvalidArgument) when sizes do not fit, Error(kUnsupported) for other elements.
void transpose(ConstBytes in, std::size_t item_bytes, std::uint64_t rows, std::uint64_t columns, MutableBytes out,
               unsigned threads = 0);

// True for F16, BF16, F32 (or Flex32, which is stored alike) and F64, each to each.
bool can_cast(DType from, DType to);

// Converts numbers from one type to another, to the nearest and of two equally near ones to the even. What is too large
// becomes infinite; subnormal numbers are kept; a NaN stays a NaN, with its sign and the leading bits of its payload.
// F64 goes to F16 and BF16 through F32. All this is as in PyTorch, whose `.to()` gives the same bits, except that it
// makes one NaN or another of all NaNs that become BF16. `out` has room for as many numbers as `in` holds and does not
// overlap it. Neither need be aligned. Throws Error(kUnsupported) where can_cast() is false, Error(kInvalidArgument)
// when sizes do not fit.
void cast(ConstBytes in, DType from, DType to, MutableBytes out, unsigned threads = 0);

// Bytes that the other type needs for what takes `bytes` in the first. Throws as cast() does.
std::uint64_t cast_size(std::uint64_t bytes, DType from, DType to);

// The numbers of `bytes` as another type, converted as they are asked for.
std::shared_ptr<ByteProducer> cast_bytes(std::shared_ptr<ByteProducer> bytes, DType from, DType to);

// The transpose of the matrix in `bytes`. Taken from where they are when they are resident; else all of them are read
// into memory when the first byte is asked for, because that needs the last row. Beside that, a band of columns is in
// memory at a time: 32 MiB at most, or one column where that is longer.
std::shared_ptr<ByteProducer> transposed_bytes(std::shared_ptr<ByteProducer> bytes, std::size_t item_bytes,
                                               std::uint64_t rows, std::uint64_t columns);

}  // namespace weightstore
