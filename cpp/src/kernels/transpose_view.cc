#include "kernels/transpose_view.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

// The matrix is cut into square tiles that fit the inner cache together with their transpose. A tile is transposed into
// a buffer, 16 bytes square at a time, and the buffer's rows are then written to their places: a row is a few whole
// cache lines, so that it can go around the caches, in which it would only cost a read and push out the input. Memory
// is the limit by then; registers wider than the 16 bytes that every processor has gain nothing.

namespace weightstore::kernels {
namespace {

// Elements on a side of a tile.
template <std::size_t kItem>
inline constexpr std::size_t kTile = kItem == 1   ? 128
                                     : kItem <= 4 ? 64
                                                  : 256 / kItem;

template <std::size_t kItem>
struct Lanes;
template <>
struct Lanes<1> {
  typedef std::uint8_t Vector __attribute__((vector_size(16)));
};
template <>
struct Lanes<2> {
  typedef std::uint16_t Vector __attribute__((vector_size(16)));
};
template <>
struct Lanes<4> {
  typedef std::uint32_t Vector __attribute__((vector_size(16)));
};
template <>
struct Lanes<8> {
  typedef std::uint64_t Vector __attribute__((vector_size(16)));
};
template <>
struct Lanes<16> : Lanes<8> {};

// a[k], b[k], a[k + 1], b[k + 1], ... from k = kFirst on.
template <int kFirst, class Vector, std::size_t... kLane>
inline Vector interleave(Vector a, Vector b, std::index_sequence<kLane...>) {
  constexpr int kCount = sizeof...(kLane);
  return __builtin_shufflevector(a, b, (kFirst + static_cast<int>(kLane / 2) + (kLane % 2 == 0 ? 0 : kCount))...);
}

// Rows k and k + count / 2 become the halves of rows 2k and 2k + 1; done as often as count can be halved, this is the
// transpose.
template <std::size_t kItem>
inline void transpose_square(const std::byte* in, std::size_t in_stride, std::byte* out, std::size_t out_stride) {
  using Vector = typename Lanes<kItem>::Vector;
  constexpr std::size_t kCount = 16 / kItem;
  std::array<Vector, kCount> rows;
  for (std::size_t i = 0; i < kCount; ++i) std::memcpy(&rows[i], in + i * in_stride, 16);
  if constexpr (kCount > 1) {
    constexpr auto kAll = std::make_index_sequence<kCount>();
#pragma GCC unroll 4
    for (std::size_t step = 1; step < kCount; step *= 2) {
      const std::array<Vector, kCount> before = rows;
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kCount / 2; ++i) {
        rows[2 * i] = interleave<0>(before[i], before[i + kCount / 2], kAll);
        rows[2 * i + 1] = interleave<kCount / 2>(before[i], before[i + kCount / 2], kAll);
      }
    }
  }
  for (std::size_t i = 0; i < kCount; ++i) std::memcpy(out + i * out_stride, &rows[i], 16);
}

template <std::size_t kItem>
void transpose_scalars(const std::byte* in, std::size_t in_stride, std::size_t rows, std::size_t columns,
                       std::byte* out, std::size_t out_stride) {
  for (std::size_t c = 0; c < columns; ++c) {
    for (std::size_t r = 0; r < rows; ++r) {
      std::memcpy(out + c * out_stride + r * kItem, in + r * in_stride + c * kItem, kItem);
    }
  }
}

template <std::size_t kItem>
void transpose_squares(const std::byte* in, std::size_t in_stride, std::size_t rows, std::size_t columns,
                       std::byte* out, std::size_t out_stride) {
  constexpr std::size_t kSquare = 16 / kItem;
  const std::size_t even_rows = rows / kSquare * kSquare;
  const std::size_t even_columns = columns / kSquare * kSquare;
  for (std::size_t r = 0; r < even_rows; r += kSquare) {
    for (std::size_t c = 0; c < even_columns; c += kSquare) {
      transpose_square<kItem>(in + r * in_stride + c * kItem, in_stride, out + c * out_stride + r * kItem, out_stride);
    }
  }
  transpose_scalars<kItem>(in + even_columns * kItem, in_stride, even_rows, columns - even_columns,
                           out + even_columns * out_stride, out_stride);
  transpose_scalars<kItem>(in + even_rows * in_stride, in_stride, rows - even_rows, columns, out + even_rows * kItem,
                           out_stride);
}

void prefetch(const std::byte* at, std::size_t size) {
  for (std::size_t i = 0; i < size; i += 64) __builtin_prefetch(at + i);
}

void put(std::byte* out, const std::byte* from, std::size_t size, [[maybe_unused]] bool stream) {
#if defined(__x86_64__)
  if (stream && reinterpret_cast<std::uintptr_t>(out) % 16 == 0) {
    for (; size >= 16; size -= 16, out += 16, from += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(out), _mm_load_si128(reinterpret_cast<const __m128i*>(from)));
    }
  }
#endif
  std::memcpy(out, from, size);
}

template <std::size_t kItem>
struct Tile {
  static constexpr std::size_t kSide = kTile<kItem>;
  static constexpr std::size_t kRow = kSide * kItem;
  // Squares of small elements touch many rows at once, which in a matrix of a power of two all want the same few places
  // of the cache: such tiles are copied together first.
  static constexpr bool kGather = kItem <= 2;

  alignas(64) std::byte gathered[kGather ? kSide * kRow : 1];
  alignas(64) std::byte transposed[kSide * kRow];

  // rows, columns <= kSide.
  void transpose(const std::byte* in, std::size_t stride, std::size_t rows, std::size_t columns) {
    if constexpr (kGather) {
      for (std::size_t r = 0; r < rows; ++r) std::memcpy(gathered + r * kRow, in + r * stride, columns * kItem);
      in = gathered;
      stride = kRow;
    }
    transpose_squares<kItem>(in, stride, rows, columns, transposed, kRow);
  }

  void put_to(std::byte* out, std::size_t stride, std::size_t rows, std::size_t columns, bool stream) const {
    for (std::size_t c = 0; c < columns; ++c) put(out + c * stride, transposed + c * kRow, rows * kItem, stream);
  }
};

template <std::size_t kItem>
void transpose_tiles(const MatrixView& in, std::byte* out, std::size_t out_stride, bool stream) {
  constexpr std::size_t kSide = Tile<kItem>::kSide;
  Tile<kItem> tile;
  for (std::size_t r = 0; r < in.rows; r += kSide) {
    const std::size_t rows = std::min(kSide, in.rows - r);
    for (std::size_t c = 0; c < in.columns; c += kSide) {
      const std::size_t columns = std::min(kSide, in.columns - c);
      const std::byte* from = in.data + r * in.stride + c * kItem;
      const std::size_t next = std::min(kSide, in.columns - c - columns) * kItem;
      for (std::size_t i = 0; i < rows; ++i) prefetch(from + i * in.stride + columns * kItem, next);
      tile.transpose(from, in.stride, rows, columns);
      tile.put_to(out + c * out_stride + r * kItem, out_stride, rows, columns, stream);
    }
  }
#if defined(__x86_64__)
  if (stream) _mm_sfence();
#endif
}

}  // namespace

std::size_t tile_side(std::size_t item_bytes) {
  switch (item_bytes) {
    case 1:
      return kTile<1>;
    case 2:
      return kTile<2>;
    case 4:
      return kTile<4>;
    case 8:
      return kTile<8>;
    default:
      return kTile<16>;
  }
}

void transpose_view(const MatrixView& in, std::byte* out, std::size_t out_stride, bool stream) {
  switch (in.item_bytes) {
    case 1:
      return transpose_tiles<1>(in, out, out_stride, stream);
    case 2:
      return transpose_tiles<2>(in, out, out_stride, stream);
    case 4:
      return transpose_tiles<4>(in, out, out_stride, stream);
    case 8:
      return transpose_tiles<8>(in, out, out_stride, stream);
    default:
      return transpose_tiles<16>(in, out, out_stride, stream);
  }
}

void transpose_bytes(const std::byte* in, std::size_t in_stride, std::size_t rows, std::size_t columns, std::byte* out,
                     std::size_t out_stride) {
  transpose_squares<1>(in, in_stride, rows, columns, out, out_stride);
}

}  // namespace weightstore::kernels
