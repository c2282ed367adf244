#pragma once

// The numbers of GGUF's quantized types, block by block.

#include <cstddef>
#include <cstdint>

#include "weightstore/dtype.h"

namespace weightstore::kernels {

// Writes the numbers of `count` blocks to `out`.
using DecodeBlocks = void (*)(const std::byte* blocks, std::size_t count, float* out);

// Null for types that are not dequantized.
DecodeBlocks portable_decoder(DType dtype);

// The same with AVX2 and F16C; null where the processor lacks them.
DecodeBlocks vector_decoder(DType dtype);

// The better of the two.
DecodeBlocks block_decoder(DType dtype);

}  // namespace weightstore::kernels
