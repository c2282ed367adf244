#pragma once

// The numbers that codes and scales make.

#include <cstddef>
#include <cstdint>

#include "kernels/quant_codes.h"

namespace weightstore::kernels {

// The scales of neighbouring codes: each block of `block` codes has one.
struct BlockScales {
  const float* scales;   // of the blocks from that of the first code on
  std::uint64_t block;   // codes that share a scale
  std::uint64_t offset;  // of the first code in its block
};

// out[i] = scale of codes[i] * value of codes[i], in the arithmetic of F32. `stream` bypasses the caches where `out` is
// aligned to 32 bytes and blocks are whole vectors; end_stream() makes the numbers visible to other threads.
void scale_codes(const CodeTable& table, const std::uint8_t* codes, std::size_t count, const BlockScales& scales,
                 float* out, bool stream);

// To be called after the last function with `stream`, before another thread reads the numbers.
void end_stream();

}  // namespace weightstore::kernels
