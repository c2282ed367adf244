#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "io/parallel.h"
#include "kernels/decode_as.h"
#include "kernels/transpose_view.h"
#include "transform/threads.h"

namespace weightstore::transform {

// kernels::decode_as() on up to `threads` threads.
inline void decode_parallel(const kernels::NumberDecoder& decoder, const std::byte* payload, DType to,
                            std::uint64_t first, MutableBytes out, unsigned threads) {
  const std::uint64_t chunk_numbers = decoder.chunk();
  const std::size_t chunk_bytes = chunk_numbers * (bits_of(to) / 8);
  const bool stream = out.size() >= kernels::kStreamBytes;
  io::parallel_for((out.size() + chunk_bytes - 1) / chunk_bytes, threads_for(out.size(), threads),
                   [&](std::size_t chunk) {
                     const std::size_t begin = chunk * chunk_bytes;
                     const MutableBytes part = out.subspan(begin, std::min(chunk_bytes, out.size() - begin));
                     kernels::decode_as(decoder, payload, to, first + chunk * chunk_numbers, part, stream);
                   });
}

}  // namespace weightstore::transform
