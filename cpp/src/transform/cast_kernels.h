#pragma once

// Conversions of whole arrays on one thread.

#include <cstddef>

#include "weightstore/dtype.h"

namespace weightstore::transform {

// Converts `count` numbers; neither address need be aligned, the arrays do not overlap.
using CastKernel = void (*)(const std::byte* in, std::byte* out, std::size_t count);

// For two different types of F16, BF16, F32 and F64; null for all others.
CastKernel portable_cast(DType from, DType to);

// The same with AVX2 and F16C; null where the processor lacks them.
CastKernel vector_cast(DType from, DType to);

// The better of the two. Flex32 is F32 here; null when nothing changes.
CastKernel cast_kernel(DType from, DType to);

}  // namespace weightstore::transform
