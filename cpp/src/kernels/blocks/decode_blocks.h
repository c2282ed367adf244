#pragma once

// The numbers of GGUF's quantized types, block by block.

#include <cstddef>
#include <cstdint>

#include "weightstore/dtype.h"

namespace weightstore::kernels {

// Writes the numbers of `count` blocks to `out`. If `stream` is true, the numbers bypass the caches where `out` is
// aligned to 32 bytes; end_stream() makes them visible to other threads.
using DecodeBlocks = void (*)(const std::byte* blocks, std::size_t count, float* out, bool stream);

// Null for types that are not dequantized.
DecodeBlocks portable_decoder(DType dtype);

// The same with AVX2 and F16C; null where the processor lacks them.
DecodeBlocks vector_decoder(DType dtype);

// The better of the two.
DecodeBlocks block_decoder(DType dtype);

}  // namespace weightstore::kernels
