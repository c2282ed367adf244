#include "kernels/quant_layout.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "base/little_endian.h"
#include "kernels/half.h"
#include "kernels/scale_codes.h"
#include "kernels/transpose_view.h"
#include "weightstore/error.h"

namespace weightstore::kernels {
namespace {

// Codes that are spread out at a time: a buffer on the stack.
constexpr std::size_t kStepCodes = 4096;

// Of rows that are decoded together: the bytes of a column and the columns that are collected at a time.
constexpr std::size_t kTileBytes = 256;
constexpr std::size_t kTileColumns = 256;
// A collected column has more bytes, so that the columns do not all want the same places of the inner cache.
constexpr std::size_t kTileStride = kTileBytes + 64;
// Bytes of the columns that are transposed at a time, and rows whose scales are collected at a time.
constexpr std::size_t kTileLines = 16;
constexpr std::size_t kScaleRows = 16;

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// Calls use(read), where read(at) makes a number of the scale at `at`.
template <class Use>
void with_scale_reader(QuantParam type, Use use) {
  switch (type) {
    case QuantParam::kF32:
      return use([](const std::byte* at) { return std::bit_cast<float>(load_little_endian<std::uint32_t>(at)); });
    case QuantParam::kF16:
      return use(
          [](const std::byte* at) { return std::bit_cast<float>(widen_f16(load_little_endian<std::uint16_t>(at))); });
    case QuantParam::kBF16:
      return use(
          [](const std::byte* at) { return std::bit_cast<float>(widen_bf16(load_little_endian<std::uint16_t>(at))); });
    case QuantParam::kUE8M0:
      return use([](const std::byte* at) { return ue8m0_value(std::to_integer<std::uint8_t>(*at)); });
    case QuantParam::kUE4M3:
      return use([](const std::byte* at) { return e4m3_value(std::to_integer<std::uint8_t>(*at)); });
  }
}

[[noreturn]] void fail_unsupported(const QuantScheme& scheme, const std::string& why) {
  throw Error(ErrorCode::kUnsupported, "cannot dequantize " + to_string(scheme) + " of Burn " +
                                           std::string(name_of(scheme.release)) + ": " + why);
}

// How many codes a word has, or a byte. A row of a packed tensor begins a new one.
std::uint64_t codes_per_unit(const QuantScheme& scheme) {
  switch (scheme.store) {
    case QuantStore::kNative:
      return 1;
    case QuantStore::kPackedNative:
      return scheme.value == QuantValue::kE2M1 ? 2 : 1;
    case QuantStore::kPackedU32:
      return 32 / value_bits(scheme.value);
  }
  return 1;
}

// The length by the rules of a release; nullopt where the release has none.
std::optional<std::uint64_t> length_by(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape,
                                       BurnRelease release) {
  const auto spelled = as_release(scheme, release);
  if (!spelled) return std::nullopt;
  try {
    return payload_bytes(*spelled, shape);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

QuantLayout::QuantLayout(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, std::uint64_t length)
    : table_(scheme), length_(length) {
  const BurnTraits& traits = traits_of(scheme.release);
  // Throws for what has no length at all.
  const std::uint64_t expected = payload_bytes(scheme, shape);
  // Burn 0.20 packs codes across rows; 0.22 begins a word with each row. Where they differ, the length tells.
  const bool fits_rows = length_by(scheme, shape, BurnRelease::k022) == length;
  const bool fits_flat = length_by(scheme, shape, BurnRelease::k020) == length;
  if (expected != length && !fits_rows && !fits_flat) {
    throw Error(ErrorCode::kInvalidArgument, "a payload of " + std::to_string(length) +
                                                 " bytes; a tensor of this shape quantized as " + to_string(scheme) +
                                                 " takes " + std::to_string(expected));
  }
  const bool packs_across_rows = traits.has_two_level_scales ? !fits_rows : expected == length;

  std::uint64_t scales = 1;
  std::uint64_t run = 1;
  bool is_whole = true;  // every dimension has a whole number of blocks
  for (std::size_t i = 0; i < shape.size(); ++i) {
    size_ *= shape[i];
    if (!scheme.block_scale) continue;
    const std::size_t from_end = shape.size() - i;
    const std::uint64_t block = from_end <= scheme.block.size() ? scheme.block[scheme.block.size() - from_end] : 1;
    scales *= ceil_div(shape[i], block);
    run *= block;
    is_whole = is_whole && shape[i] % block == 0;
  }
  if (scheme.block_scale) global_type_ = scheme.tensor_scale;
  scale_type_ = scheme.block_scale ? *scheme.block_scale : scheme.tensor_scale.value_or(QuantParam::kF32);
  scales_ = length - (global_type_ ? scale_bytes(*global_type_) : 0) - scales * scale_bytes(scale_type_);

  const bool is_run = !scheme.block_scale || blocks_are_runs(scheme.block, shape);
  const bool is_packed = scheme.store != QuantStore::kNative;
  const bool packs_outer = is_packed && scheme.packed_dim != 0;
  const std::uint64_t columns = shape.empty() ? 1 : shape.back();
  const bool has_gaps = is_packed && !packs_across_rows && columns % codes_per_unit(scheme) != 0;
  if (!traits.blocks_are_rectangles && !is_whole) fail_unsupported(scheme, "its blocks do not divide the shape");
  if (packs_outer && packs_across_rows && !fits_rows) {
    fail_unsupported(scheme, "it is packed along an outer dimension that is not a whole number of words");
  }
  if (!traits.blocks_are_rectangles && !is_run && (packs_outer || has_gaps)) {
    fail_unsupported(scheme, "its blocks are runs of elements, but its values are not stored in that order");
  }
  if (!packs_outer && !has_gaps && (is_run || !traits.blocks_are_rectangles)) {
    set_flat(scheme.block_scale ? run : std::max<std::uint64_t>(size_, 1));
  } else {
    set_rows(scheme, shape);
  }
}

void QuantLayout::set_flat(std::uint64_t run) {
  inner_ = {.size = size_, .code_stride = table_.bits, .block = run, .scale_stride = 1};
}

void QuantLayout::set_rows(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape) {
  const std::vector<std::uint64_t> dims = shape.empty() ? std::vector<std::uint64_t>{1} : shape;
  const std::size_t rank = dims.size();
  const std::uint64_t unit_codes = codes_per_unit(scheme);
  const std::size_t packed_dim = scheme.store == QuantStore::kNative ? 0 : static_cast<std::size_t>(scheme.packed_dim);
  if (packed_dim >= rank) fail_unsupported(scheme, "the packed dimension is not one of the tensor's");
  const std::size_t axis = rank - 1 - packed_dim;

  std::vector<std::uint64_t> blocks(rank, 1);
  for (std::size_t i = 0; i < std::min(rank, scheme.block.size()); ++i) {
    blocks[rank - 1 - i] = scheme.block[scheme.block.size() - 1 - i];
  }
  // Dimensions as they are stored: the packed one is exchanged with the innermost one. This holds for the grid of
  // scales of blocks, too.
  std::vector<std::uint64_t> stored = dims;
  std::vector<std::uint64_t> grid(rank);
  for (std::size_t i = 0; i < rank; ++i) grid[i] = ceil_div(dims[i], blocks[i]);
  std::swap(stored[axis], stored[rank - 1]);
  std::swap(grid[axis], grid[rank - 1]);
  std::uint64_t code_stride = ceil_div(stored[rank - 1], unit_codes) * unit_codes * table_.bits;  // of a line
  std::uint64_t scale_stride = grid[rank - 1];
  std::vector<Axis> axes(rank);  // by stored position
  axes[rank - 1] = {.size = stored[rank - 1], .code_stride = table_.bits, .block = 0, .scale_stride = 1};
  for (std::size_t i = rank - 1; i-- > 0;) {
    axes[i] = {.size = stored[i], .code_stride = code_stride, .block = 0, .scale_stride = scale_stride};
    code_stride *= stored[i];
    scale_stride *= grid[i];
  }
  std::swap(axes[axis], axes[rank - 1]);
  for (std::size_t i = 0; i < rank; ++i) {
    axes[i].block = blocks[i];
    if (!scheme.block_scale) {
      axes[i].block = std::max<std::uint64_t>(dims[i], 1);
      axes[i].scale_stride = 0;
    }
  }
  inner_ = axes.back();
  axes.pop_back();
  outer_ = std::move(axes);
}

QuantLayout::Row QuantLayout::row(std::uint64_t number) const {
  Row row{0, 0};
  for (std::size_t i = outer_.size(); i-- > 0;) {
    const Axis& axis = outer_[i];
    const std::uint64_t at = number % axis.size;
    number /= axis.size;
    row.scale += at / axis.block * axis.scale_stride;
    row.code += at * axis.code_stride;
  }
  return row;
}

const std::uint8_t* QuantLayout::codes(const std::byte* payload, const Row& row, std::uint64_t first, std::size_t count,
                                       std::uint8_t* buffer) const {
  const auto* values = reinterpret_cast<const std::uint8_t*>(payload);
  const std::uint64_t begin = row.code + first * inner_.code_stride;
  const std::uint8_t* from = values + begin / 8;
  if (inner_.code_stride != table_.bits) {
    // Lines are whole bytes, so all codes of the row are at the same place in their bytes.
    const std::size_t step = inner_.code_stride / 8;
    for (std::size_t i = 0; i < count; ++i) buffer[i] = from[i * step];
    if (!table_.is_whole_byte) table_.extract(buffer, count, static_cast<unsigned>(begin % 8), buffer);
    return buffer;
  }
  if (table_.is_whole_byte) return from;
  const std::size_t per_byte = 8 / table_.bits;
  if (per_byte == 1) {
    table_.extract(from, count, 0, buffer);
    return buffer;
  }
  std::size_t done = 0;
  if (const std::size_t skip = begin % 8 / table_.bits; skip != 0) {
    done = std::min(count, per_byte - skip);
    for (std::size_t i = 0; i < done; ++i) {
      buffer[i] = static_cast<std::uint8_t>(table_.codes[*from] >> (8 * (skip + i)));
    }
    ++from;
  }
  // A byte at a time, its codes by one copy of a constant size.
  const auto spread = [&](auto size) {
    for (; done + per_byte <= count; done += per_byte) std::memcpy(buffer + done, &table_.codes[*from++], size());
  };
  if (per_byte == 4) spread(std::integral_constant<std::size_t, 4>());
  if (per_byte == 2) spread(std::integral_constant<std::size_t, 2>());
  for (std::size_t i = 0; done < count; ++i, ++done) {
    buffer[done] = static_cast<std::uint8_t>(table_.codes[*from] >> (8 * i));
  }
  return buffer;
}

// The scales of the columns [first, first + count) for rows whose scales are neighbours: those of row.scale + i are
// written from out + i * stride on.
BlockScales QuantLayout::scales(const std::byte* payload, const Row& row, std::size_t rows, std::uint64_t first,
                                std::size_t count, float* out, std::size_t stride) const {
  float global = 1;
  if (global_type_) {
    with_scale_reader(*global_type_, [&](auto read) { global = read(payload + length_ - scale_bytes(*global_type_)); });
  }
  const std::uint64_t block = first / inner_.block;
  const auto blocks = static_cast<std::size_t>((first + count - 1) / inner_.block - block + 1);
  const std::size_t width = scale_bytes(scale_type_);
  const std::byte* from = payload + scales_ + (row.scale + block * inner_.scale_stride) * width;
  with_scale_reader(scale_type_, [&](auto read) {
    for (std::size_t i = 0; i < blocks; ++i) {
      const std::byte* at = from + i * inner_.scale_stride * width;
      for (std::size_t j = 0; j < rows; ++j) out[j * stride + i] = global * read(at + j * width);
    }
  });
  return {.scales = out, .block = inner_.block, .offset = first % inner_.block};
}

void QuantLayout::decode_row(const std::byte* payload, const Row& row, std::uint64_t first, std::size_t count,
                             float* out, bool stream) const {
  std::uint8_t buffer[kStepCodes];
  float factors[kStepCodes];
  while (count != 0) {
    const std::size_t step = std::min(count, kStepCodes);
    const BlockScales scales = this->scales(payload, row, 1, first, step, factors, 0);
    scale_codes(table_, codes(payload, row, first, step, buffer), step, scales, out, stream);
    first += step;
    out += step;
    count -= step;
  }
}

std::uint64_t QuantLayout::chunk() const {
  constexpr std::uint64_t kUsual = 256u << 10;
  constexpr std::uint64_t kMost = 4u << 20;
  if (!has_tiles() || inner_.size == 0) return kUsual;
  const std::uint64_t rows = std::min<std::uint64_t>(kTileBytes * 8 / table_.bits, kMost / inner_.size);
  return std::max(rows * inner_.size, kUsual);
}

std::uint64_t QuantLayout::step() const {
  constexpr std::uint64_t kRows = 64;
  constexpr std::uint64_t kMost = 1u << 20;
  if (!has_tiles() || inner_.size == 0) return NumberDecoder::step();
  return std::max(std::min(kRows, kMost / inner_.size) * inner_.size, NumberDecoder::step());
}

bool QuantLayout::has_tiles() const { return !outer_.empty() && outer_.back().code_stride == table_.bits; }

// How many rows from this one on are in the same few bytes of their columns, and worth decoding together: `most` at
// most. 1 where neighbouring rows have their codes elsewhere.
std::size_t QuantLayout::rows_of_tile(std::uint64_t row, std::uint64_t most) const {
  if (!has_tiles()) return 1;
  const std::uint64_t at = row % outer_.back().size;
  const std::uint64_t in_byte = at * table_.bits % 8 / table_.bits;
  return static_cast<std::size_t>(std::min({most, outer_.back().size - at, kTileBytes * 8 / table_.bits - in_byte}));
}

// Of every column, the bytes that hold these rows are neighbours. They are collected, some columns at a time, and then
// transposed, some bytes at a time, so that the codes of a row become neighbours.
void QuantLayout::decode_tile(const std::byte* payload, std::uint64_t row, std::size_t rows, float* out,
                              bool stream) const {
  constexpr std::size_t kAhead = 8;  // columns; memory answers more slowly than a column is copied
  alignas(64) std::byte tile[kTileStride * kTileColumns];
  const Row begin = this->row(row);
  const std::byte* from = payload + begin.code / 8;
  const std::size_t stride = inner_.code_stride / 8;
  const std::size_t bytes = (begin.code % 8 + rows * table_.bits + 7) / 8;
  for (std::size_t first = 0; first < inner_.size; first += kTileColumns) {
    const std::size_t columns = std::min<std::size_t>(kTileColumns, inner_.size - first);
    for (std::size_t i = 0; i < columns; ++i) {
      const std::byte* column = from + (first + i) * stride;
      if (first + i + kAhead < inner_.size) {
        for (std::size_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(column + kAhead * stride + byte);
      }
      std::memcpy(tile + i * kTileStride, column, bytes);
    }
    decode_lines(payload, row, rows, tile, first, columns, out + first, stream);
  }
}

// Decodes the columns [first, first + columns) of the rows of a tile, of which `tile` has the bytes.
void QuantLayout::decode_lines(const std::byte* payload, std::uint64_t row, std::size_t rows, const std::byte* tile,
                               std::uint64_t first, std::size_t columns, float* out, bool stream) const {
  alignas(64) std::uint8_t lines[kTileLines * kTileColumns];
  std::uint8_t buffer[kTileColumns];
  float factors[kScaleRows * kTileColumns];
  BlockScales scales{};
  const Axis& axis = outer_.back();
  const std::size_t skipped = this->row(row).code % 8;  // bits
  const std::size_t bytes = (skipped + rows * table_.bits + 7) / 8;
  const std::uint64_t at = row % axis.size;
  const std::size_t has_scales = axis.scale_stride == 0 ? 0 : 1;
  std::uint64_t first_scale = 0;  // of the rows in `factors`
  std::size_t lines_end = 0;
  for (std::size_t i = 0; i < rows; ++i) {
    const std::size_t bit = skipped + i * table_.bits;
    if (bit / 8 == lines_end) {
      const std::size_t count = std::min(kTileLines, bytes - lines_end);
      transpose_bytes(tile + lines_end, kTileStride, columns, count, reinterpret_cast<std::byte*>(lines), kTileColumns);
      lines_end += count;
    }
    if (i % kScaleRows == 0) {
      const std::uint64_t last = at + std::min(rows, i + kScaleRows) - 1;
      first_scale = (at + i) / axis.block;
      const std::size_t count = has_scales * (last / axis.block - first_scale) + 1;
      scales = this->scales(payload, this->row(row + i), count, first, columns, factors, kTileColumns);
    }
    scales.scales = factors + has_scales * ((at + i) / axis.block - first_scale) * kTileColumns;
    const std::uint8_t* codes = lines + bit / 8 % kTileLines * kTileColumns;
    if (!table_.is_whole_byte) {
      table_.extract(codes, columns, static_cast<unsigned>(bit % 8), buffer);
      codes = buffer;
    }
    scale_codes(table_, codes, columns, scales, out + i * inner_.size, stream);
  }
}

void QuantLayout::decode(const std::byte* payload, std::uint64_t first, std::size_t count, float* out,
                         bool stream) const {
  while (count != 0) {
    const std::uint64_t column = first % inner_.size;
    const std::uint64_t number = first / inner_.size;
    auto length = static_cast<std::size_t>(std::min<std::uint64_t>(count, inner_.size - column));
    const std::size_t rows = column == 0 ? rows_of_tile(number, count / inner_.size) : 1;
    if (rows > 1) {
      decode_tile(payload, number, rows, out, stream);
      length = rows * inner_.size;
    } else {
      decode_row(payload, row(number), column, length, out, stream);
    }
    first += length;
    out += length;
    count -= length;
  }
  if (stream) end_stream();
}

}  // namespace weightstore::kernels
