#pragma once

// Transposes arrays, casts them between floating-point types, and converts the quantized tensors of Burn and GGUF to
// numbers and back: from memory to memory, on the calling thread. These functions are part of weightstore_formats,
// which needs neither threads nor files. `transform.h` does the same on several threads, and while a file is written.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"
#include "weightstore/quant_scheme.h"

namespace weightstore {

// True when both types are among F16, BF16, F32, Flex32 (which is stored as F32) and F64.
bool can_cast(DType from, DType to);

// The size of an array after a cast; `bytes` is its size before. Throws Error(kUnsupported) where can_cast() is false,
// and Error(kInvalidArgument) when `bytes` is not a multiple of the element size.
std::uint64_t cast_size(std::uint64_t bytes, DType from, DType to);

// True for the types of GGUF whose numbers dequantize() makes: all but IQ1, IQ2, IQ3, Q8_1, Q8_K and Q1_0.
bool can_dequantize(DType dtype);

// True for the types of GGUF that quantize() makes: Q8_0 and Q4_0.
bool can_quantize(DType dtype);

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

// Writes numbers of a quantized tensor of this shape to `out`, as `to` (F32, Flex32, F64, F16 or BF16): the elements
// from `first` on, in row-major order, as many as `out` has room for. The numbers are those that Burn's CPU backend
// reads, bit for bit, by the rules of `scheme.release`; types other than F32 are cast from F32. docs/formats.md says
// which.
//
// Throws Error(kUnsupported) for a scheme that cannot be dequantized and for other types, and Error(kInvalidArgument)
// when `payload` does not have the length that scheme and shape demand, or `out` reaches beyond the last element.
void dequantize(ConstBytes payload, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, DType to,
                std::uint64_t first, MutableBytes out);

// The same for a payload that is blocks of a type of GGUF. The numbers are those of the Python package gguf, bit for
// bit. Throws Error(kUnsupported) where can_dequantize() is false.
void dequantize(ConstBytes payload, DType from, DType to, std::uint64_t first, MutableBytes out);

// Quantizes the F32 numbers `in` to blocks of Q8_0 or Q4_0, bit for bit as the Python package gguf does. `out` has one
// block for 32 numbers. Neither needs to be aligned. Throws Error(kUnsupported) for other types, and
// Error(kInvalidArgument) when a size does not fit, when a number is not finite, or when the scale of a block is too
// large for an F16.
void quantize(ConstBytes in, DType to, MutableBytes out);

// Quantizes the F32 numbers `in` of a tensor of this shape, as Burn's CPU backend does by the rules of
// `scheme.release`: the largest magnitude of the tensor or of a block becomes the largest code. `out` must have
// payload_bytes(scheme, shape). The scheme has a value type among Q8F, Q8S, Q4F, Q4S, Q2F and Q2S, F32 scales of the
// tensor or of blocks, and a native store or one that is packed into words along the innermost dimension. `in` is
// aligned to 4 bytes.
//
// Throws Error(kUnsupported) for other schemes, and Error(kInvalidArgument) when a size does not fit, when the tensor
// is not a whole number of blocks, or when a number is not finite.
void quantize(ConstBytes in, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, MutableBytes out);

}  // namespace kernels
}  // namespace weightstore
