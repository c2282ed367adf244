#include <algorithm>

#include "io/parallel.h"
#include "kernels/transpose_view.h"
#include "transform/threads.h"
#include "weightstore/transform.h"

namespace weightstore {

// Tasks are bands of columns, so that a thread writes memory of its own; of few columns, also bands of rows.
void transform::transpose_view(const kernels::MatrixView& in, std::byte* out, std::size_t out_stride,
                               unsigned threads) {
  // Of a row, in one task: neighbouring tiles share pages of the input.
  constexpr std::size_t kBandBytes = 2048;
  const std::size_t item = in.item_bytes;
  const std::size_t bytes = in.rows * in.columns * item;
  if (bytes == 0) return;
  const bool stream = bytes >= kernels::kStreamBytes;
  threads = threads_for(bytes, threads);
  if (threads == 1) return kernels::transpose_view(in, out, out_stride, stream);
  const std::size_t side = kernels::tile_side(item);
  const std::size_t band_columns = std::max(side, kBandBytes / item);
  const std::size_t bands = (in.columns + band_columns - 1) / band_columns;
  const std::size_t wanted = std::size_t{4} * threads;
  const std::size_t cuts = bands >= wanted ? 1 : (wanted + bands - 1) / bands;
  const std::size_t band_rows = std::max(side, (in.rows / cuts + side - 1) / side * side);
  const std::size_t row_bands = (in.rows + band_rows - 1) / band_rows;
  io::parallel_for(bands * row_bands, threads, [&](std::size_t band) {
    const std::size_t c = band % bands * band_columns;
    const std::size_t r = band / bands * band_rows;
    const kernels::MatrixView band_view{in.data + r * in.stride + c * item, in.stride, std::min(band_rows, in.rows - r),
                                        std::min(band_columns, in.columns - c), item};
    kernels::transpose_view(band_view, out + c * out_stride + r * item, out_stride, stream);
  });
}

void transpose(ConstBytes in, std::size_t item_bytes, std::uint64_t rows, std::uint64_t columns, MutableBytes out,
               unsigned threads) {
  kernels::check_transpose(in, item_bytes, rows, columns, out);
  if (rows <= 1 || columns <= 1) return kernels::transpose(in, item_bytes, rows, columns, out);
  transform::transpose_view({in.data(), columns * item_bytes, rows, columns, item_bytes}, out.data(), rows * item_bytes,
                            threads);
}

}  // namespace weightstore
