#pragma once

// How numbers of one type become numbers of another.

#include <cstddef>

#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"

namespace weightstore::kernels {

// Converts `count` numbers; neither address need be aligned, the arrays do not overlap.
using CastKernel = void (*)(const std::byte* in, std::byte* out, std::size_t count);

// For two different types of F16, BF16, F32 and F64; null for all others.
CastKernel portable_cast(DType from, DType to);

// The same with AVX2 and F16C; null where the processor lacks them.
CastKernel vector_cast(DType from, DType to);

// The better of the two. Flex32 is F32 here; null when nothing changes.
CastKernel cast_kernel(DType from, DType to);

// Throws what kernels::cast() throws.
void check_cast(ConstBytes in, DType from, DType to, ConstBytes out);

}  // namespace weightstore::kernels
