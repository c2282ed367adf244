#pragma once

#include <cstddef>
#include <cstdint>

#include "io/parallel.h"
#include "kernels/transpose_view.h"

namespace weightstore::transform {

// The threads to use for work on `bytes`: with little to do, starting them costs more than it gains.
inline unsigned threads_for(std::uint64_t bytes, unsigned asked) {
  constexpr std::uint64_t kSmall = 4u << 20;
  if (bytes < kSmall) return 1;
  return asked != 0 ? asked : io::default_threads();
}

// kernels::transpose_view() on up to `threads` threads.
void transpose_view(const kernels::MatrixView& in, std::byte* out, std::size_t out_stride, unsigned threads);

}  // namespace weightstore::transform
