#pragma once

// The elements of a tensor as numbers of the machine, block by block, for kernels that only look at numbers.

#include <cstddef>
#include <cstdint>

#include "weightstore/dtype.h"

namespace weightstore::kernels {

// How the numbers of a type are computed with.
enum class NumberKind : std::uint8_t {
  kNone,      // the type has no numbers that one by one: F6, QFloat without its scheme, and blocks of GGUF
  kFloat,     // float holds every number
  kDouble,    // double holds every number
  kSigned,    // I64
  kUnsigned,  // U64
};
NumberKind number_kind(DType dtype);

// The type of the numbers of an element: a complex element has two, its real and its imaginary part. Other types are
// returned as they are; Flex32 is F32.
DType number_type(DType dtype);

// Converts `count` numbers of a type for which number_type(dtype) == dtype. `in` need not be aligned. For F4, which has
// two numbers in a byte, the first is the lower half. The first function is for kFloat, the second for every kind but
// kNone; it rounds 64-bit integers.
void decode_numbers(DType dtype, const std::byte* in, std::size_t count, float* out);
void decode_numbers(DType dtype, const std::byte* in, std::size_t count, double* out);

}  // namespace weightstore::kernels
