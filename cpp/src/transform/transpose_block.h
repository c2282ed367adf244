#pragma once

#include <cstddef>
#include <cstdint>

namespace weightstore::transform {

// Throws unless elements of this size can be transposed and the matrix has this many bytes.
void check_matrix(std::uint64_t bytes, std::size_t item_bytes, std::uint64_t rows, std::uint64_t columns);

// A part of a row-major matrix: `rows` of `columns` elements, the rows `stride` bytes apart.
struct MatrixPart {
  const std::byte* data;
  std::size_t stride;
  std::size_t rows;
  std::size_t columns;
  std::size_t item_bytes;
};

// Writes the transpose: `columns` rows that are `out_stride` bytes apart, on up to `threads` threads.
void transpose_part(const MatrixPart& in, std::byte* out, std::size_t out_stride, unsigned threads);

}  // namespace weightstore::transform
