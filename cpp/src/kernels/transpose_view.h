#pragma once

#include <cstddef>
#include <cstdint>

#include "weightstore/byte_source.h"

namespace weightstore::kernels {

// Throws Error(kUnsupported) if elements of this size cannot be transposed, and Error(kInvalidArgument) if the matrix
// does not have this many bytes.
void check_matrix(std::uint64_t bytes, std::size_t item_bytes, std::uint64_t rows, std::uint64_t columns);
// Throws the errors of kernels::transpose() for these arguments.
void check_transpose(ConstBytes in, std::size_t item_bytes, std::uint64_t rows, std::uint64_t columns, ConstBytes out);

// A rectangle of a row-major matrix: `rows` of `columns` elements. Rows begin `stride` bytes apart.
struct MatrixView {
  const std::byte* data;
  std::size_t stride;
  std::size_t rows;
  std::size_t columns;
  std::size_t item_bytes;
};

// Callers stream outputs of at least this many bytes past the caches. Smaller outputs stay in the cache.
inline constexpr std::size_t kStreamBytes = std::size_t{1} << 20;

// The kernel transposes square tiles with this many elements on a side. A view of whole tiles is fastest.
std::size_t tile_side(std::size_t item_bytes);

// Writes the transpose of `in` to `out`: `columns` rows that begin `out_stride` bytes apart. `stream` bypasses the
// caches, which is faster if the whole output has kStreamBytes or more.
void transpose_view(const MatrixView& in, std::byte* out, std::size_t out_stride, bool stream);

// The same for a matrix of bytes that is in the inner cache: nothing is collected, prefetched or streamed.
void transpose_bytes(const std::byte* in, std::size_t in_stride, std::size_t rows, std::size_t columns, std::byte* out,
                     std::size_t out_stride);

}  // namespace weightstore::kernels
