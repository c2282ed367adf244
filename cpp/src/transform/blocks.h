#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "io/parallel.h"

namespace weightstore::transform {

// Calls work(block) for every block below `blocks`, on the calling thread when `threads` is 1.
template <class Work>
void for_blocks(std::uint64_t blocks, unsigned threads, const Work& work) {
  threads = static_cast<unsigned>(std::min<std::uint64_t>(threads, blocks));
  std::atomic<std::uint64_t> next = 0;
  const auto take = [&](const io::StopFlag& stop) {
    while (!stop.is_set()) {
      const std::uint64_t block = next.fetch_add(1, std::memory_order_relaxed);
      if (block >= blocks) return;
      work(block);
    }
  };
  if (threads <= 1) return take(io::StopFlag());
  io::run_parallel(threads, [&](unsigned, const io::StopFlag& stop) { take(stop); });
}

// The threads to use for work on `bytes`: with little to do, starting them costs more than it gains.
inline unsigned threads_for(std::uint64_t bytes, unsigned asked) {
  constexpr std::uint64_t kSmall = 4u << 20;
  if (bytes < kSmall) return 1;
  return asked != 0 ? asked : io::default_threads();
}

}  // namespace weightstore::transform
