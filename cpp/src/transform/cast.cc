#include <algorithm>

#include "io/parallel.h"
#include "kernels/cast_kernels.h"
#include "transform/threads.h"
#include "weightstore/transform.h"

namespace weightstore {

void cast(ConstBytes in, DType from, DType to, MutableBytes out, unsigned threads) {
  constexpr std::size_t kChunkNumbers = 256u << 10;
  kernels::check_cast(in, from, to, out);
  const std::size_t from_bytes = bits_of(from) / 8;
  const std::size_t to_bytes = bits_of(to) / 8;
  const std::size_t count = in.size() / from_bytes;
  io::parallel_for((count + kChunkNumbers - 1) / kChunkNumbers, transform::threads_for(in.size() + out.size(), threads),
                   [&](std::size_t chunk) {
                     const std::size_t first = chunk * kChunkNumbers;
                     const std::size_t numbers = std::min(kChunkNumbers, count - first);
                     kernels::cast(in.subspan(first * from_bytes, numbers * from_bytes), from, to,
                                   out.subspan(first * to_bytes, numbers * to_bytes));
                   });
}

}  // namespace weightstore
