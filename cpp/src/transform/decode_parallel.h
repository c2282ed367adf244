#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "io/parallel.h"
#include "kernels/decode_as.h"
#include "kernels/transpose_view.h"
#include "transform/threads.h"

namespace weightstore::transform {

// kernels::decode_as() on up to `threads` threads. A thread fills at least a huge page at a time: two threads that
// touch the same new one would both wait until the kernel has cleared it, and clear one more.
inline void decode_parallel(const kernels::NumberDecoder& decoder, const std::byte* payload, DType to,
                            std::uint64_t first, MutableBytes out, unsigned threads) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t least_bytes = decoder.chunk() * (bits_of(to) / 8);
  const std::size_t repeats = (kHugePage + least_bytes - 1) / least_bytes;
  const std::uint64_t chunk_numbers = decoder.chunk() * repeats;
  const std::size_t chunk_bytes = least_bytes * repeats;
  const bool stream = out.size() >= kernels::kStreamBytes;
  io::parallel_for((out.size() + chunk_bytes - 1) / chunk_bytes, threads_for(out.size(), threads),
                   [&](std::size_t chunk) {
                     const std::size_t begin = chunk * chunk_bytes;
                     const MutableBytes part = out.subspan(begin, std::min(chunk_bytes, out.size() - begin));
                     kernels::decode_as(decoder, payload, to, first + chunk * chunk_numbers, part, stream);
                   });
}

}  // namespace weightstore::transform
