// As the CPU backends of Burn quantize: ndarray in 0.20 and 0.21, flex since 0.22. Each step is done in the arithmetic
// of F32 and in their order, because the codes must be the same.

#include "kernels/quantize.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/quant_codes.h"
#include "kernels/quantize_runs.h"
#include "weightstore/error.h"
#include "weightstore/kernels.h"

namespace weightstore::kernels {
namespace {

CodeRange range_of(QuantValue value) {
  const auto most = static_cast<float>((1 << (value_bits(value) - 1)) - 1);
  const bool is_full = value == QuantValue::kQ8F || value == QuantValue::kQ4F || value == QuantValue::kQ2F;
  return {is_full ? -most - 1 : -most, most};
}

void check_scheme(const QuantScheme& scheme) {
  const auto refuse = [&](const char* why) {
    throw Error(ErrorCode::kUnsupported, "cannot quantize to " + to_string(scheme) + ": " + why);
  };
  if (is_float(scheme.value)) refuse("its values are not integers");
  if (scheme.mode != QuantMode::kSymmetric) refuse("only symmetric schemes are made");
  if (scheme.store == QuantStore::kPackedNative || scheme.packed_dim != 0) {
    refuse("values are stored natively, or packed into words along the innermost dimension");
  }
  const bool two_levels = scheme.block_scale && scheme.tensor_scale;
  const QuantParam type = scheme.block_scale ? *scheme.block_scale : scheme.tensor_scale.value_or(QuantParam::kF32);
  if (two_levels || type != QuantParam::kF32) refuse("scales are F32, of the tensor or of blocks");
}

std::uint64_t elements_of(const std::vector<std::uint64_t>& shape) {
  std::uint64_t size = 1;
  for (const std::uint64_t dimension : shape) size *= dimension;
  return size;
}

std::uint64_t block_of(const QuantScheme& scheme, std::size_t from_end) {
  return from_end <= scheme.block.size() ? scheme.block[scheme.block.size() - from_end] : 1;
}

void check_blocks(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape) {
  if (!scheme.block_scale) return;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::uint64_t block = block_of(scheme, shape.size() - i);
    if (shape[i] % block == 0) continue;
    throw Error(ErrorCode::kInvalidArgument, "dimension " + std::to_string(i) + " has " + std::to_string(shape[i]) +
                                                 " elements, not a whole number of blocks of " + std::to_string(block) +
                                                 " (" + to_string(scheme) + ")");
  }
}

std::uint64_t block_count(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape) {
  std::uint64_t count = 1;
  for (std::size_t i = 0; scheme.block_scale && i < shape.size(); ++i) {
    count *= shape[i] / block_of(scheme, shape.size() - i);
  }
  return count;
}

struct Scale {
  float stored;
  float divisor;
};

Scale scale_for(std::uint32_t peak, const CodeRange& range, BurnRelease release) {
  if (peak >= 0x7f80'0000u) throw Error(ErrorCode::kInvalidArgument, "has numbers that are not finite");
  const float scale = 2.0f * std::bit_cast<float>(peak) / (range.most - range.least);
  // For a block of zeros 0.20 stores zero, and divides by another number; 0.22 has the smallest normal number.
  if (release < BurnRelease::k022) return {scale, scale == 0 ? 0.1f : scale};
  const float valid = scale > 0 && std::isfinite(scale) ? scale : std::numeric_limits<float>::min();
  return {valid, valid};
}

Rounding rounding_of(BurnRelease release) {
  if (release >= BurnRelease::k023) return Rounding::kEvenOfQuotient;
  return release == BurnRelease::k022 ? Rounding::kAwayOfProduct : Rounding::kAwayOfQuotient;
}

}  // namespace

void check_quantize(std::uint64_t in_bytes, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape,
                    std::uint64_t out_bytes) {
  check_scheme(scheme);
  const std::uint64_t length = payload_bytes(scheme, shape);
  check_blocks(scheme, shape);
  const std::uint64_t expected = elements_of(shape) * sizeof(float);
  if (in_bytes == expected && out_bytes == length) return;
  throw Error(ErrorCode::kInvalidArgument, std::to_string(in_bytes) + " bytes of F32 to " + std::to_string(out_bytes) +
                                               " bytes; a tensor of this shape has " + std::to_string(expected) +
                                               " and takes " + std::to_string(length));
}

Quantizer::Quantizer(ConstBytes in, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape,
                     MutableBytes out)
    : in_(reinterpret_cast<const float*>(in.data())), scheme_(scheme), codes_(out.data()) {
  check_quantize(in.size(), scheme, shape, out.size());
  size_ = elements_of(shape);
  const std::uint64_t blocks = block_count(scheme, shape);
  peaks_.resize(blocks);
  divisors_.resize(blocks);
  scales_ = out.last(blocks * sizeof(float));
  set_blocks(scheme, shape);

  // 0.20 packs across rows, and counts whole words also for a native store.
  const std::uint64_t code_bytes = out.size() - scales_.size();
  const bool is_packed = scheme.store == QuantStore::kPackedU32;
  const bool has_lines = is_packed && traits_of(scheme.release).has_two_level_scales && !shape.empty();
  bits_ = is_packed ? value_bits(scheme.value) : 8;
  line_ = has_lines ? shape.back() : size_;
  line_bytes_ = has_lines ? (line_ * bits_ + 31) / 32 * 4 : code_bytes;
  const bool has_gaps = line_ != size_ && line_ * bits_ % 8 != 0;
  granule_ = has_gaps ? line_ : 8 / bits_;
  if (size_ == 0) std::fill_n(codes_, code_bytes, std::byte{0});
}

void Quantizer::set_blocks(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape) {
  const bool is_rectangle = scheme.block_scale && traits_of(scheme.release).blocks_are_rectangles;
  if (!is_rectangle || shape.empty()) {
    const std::uint64_t run = size_ / std::max<std::uint64_t>(peaks_.size(), 1);
    axes_ = {{size_, std::max<std::uint64_t>(run, 1), 1}};
    group_ = axes_.front().block;
    return;
  }
  std::uint64_t elements = 1;
  std::uint64_t stride = 1;
  for (std::size_t from_end = 1; from_end <= shape.size(); ++from_end) {
    const std::uint64_t dimension = shape[shape.size() - from_end];
    const std::uint64_t block = block_of(scheme, from_end);
    axes_.push_back({dimension, block, stride});
    if (block > 1) {
      group_ = elements * block;
      group_blocks_ = stride;
    }
    elements *= dimension;
    stride *= dimension / block;
  }
}

// Calls work(block, first, length, runs) for runs of neighbours: each of `runs` has `length` elements, and they are in
// consecutive blocks.
template <class Work>
void Quantizer::for_runs(std::uint64_t begin, std::uint64_t end, const Work& work) const {
  const Axis inner = axes_.front();
  while (begin < end) {
    std::uint64_t block = 0;
    std::uint64_t row = begin / inner.size;
    for (std::size_t i = 1; i < axes_.size(); ++i) {
      block += row % axes_[i].size / axes_[i].block * axes_[i].stride;
      row /= axes_[i].size;
    }
    std::uint64_t column = begin % inner.size;
    const std::uint64_t row_end = std::min(end, begin - column + inner.size);
    while (begin < row_end) {
      const std::uint64_t length = std::min(row_end - begin, inner.block - column % inner.block);
      const std::uint64_t runs = length == inner.block ? (row_end - begin) / length : 1;
      work(block + column / inner.block, begin, static_cast<std::size_t>(length), static_cast<std::size_t>(runs));
      begin += length * runs;
      column += length * runs;
    }
  }
}

void Quantizer::find_peaks(std::uint64_t begin, std::uint64_t end) {
  for_runs(begin, end, [&](std::uint64_t block, std::uint64_t first, std::size_t length, std::size_t runs) {
    for (std::size_t i = 0; i < runs; ++i) {
      std::uint32_t found = 0;
      raise_peaks(in_ + first + i * length, length, 1, &found);
      // Other threads may have elements of the same block. The largest is the same in any order.
      const std::atomic_ref<std::uint32_t> peak(peaks_[block + i]);
      std::uint32_t known = peak.load(std::memory_order_relaxed);
      while (known < found && !peak.compare_exchange_weak(known, found, std::memory_order_relaxed)) {
      }
    }
  });
}

void Quantizer::make_scales() { make_scales(0, peaks_.size()); }

void Quantizer::make_scales(std::uint64_t first, std::uint64_t last) {
  const CodeRange range = range_of(scheme_.value);
  for (std::uint64_t i = first; i < last; ++i) {
    const Scale scale = scale_for(peaks_[i], range, scheme_.release);
    divisors_[i] = scale.divisor;
    std::memcpy(&scales_[sizeof(float) * i], &scale.stored, sizeof(float));
  }
}

void Quantizer::quantize_groups(std::uint64_t begin, std::uint64_t end) {
  for_runs(begin, end, [&](std::uint64_t block, std::uint64_t first, std::size_t length, std::size_t runs) {
    raise_peaks(in_ + first, length, runs, &peaks_[block]);
  });
  make_scales(begin / group_ * group_blocks_, end / group_ * group_blocks_);
  encode(begin, end);
}

void Quantizer::encode(std::uint64_t begin, std::uint64_t end) const {
  constexpr std::uint64_t kStepCodes = 4096;  // of a line at a time: whole bytes, but for the last
  std::int8_t buffer[kStepCodes];
  const CodeRange range = range_of(scheme_.value);
  const Rounding rounding = rounding_of(scheme_.release);
  while (begin < end) {
    const std::uint64_t column = begin % line_;
    const auto count = static_cast<std::size_t>(std::min({end - begin, line_ - column, kStepCodes}));
    auto* out = reinterpret_cast<std::uint8_t*>(codes_) + begin / line_ * line_bytes_ + column * bits_ / 8;
    std::int8_t* codes = bits_ == 8 ? reinterpret_cast<std::int8_t*>(out) : buffer;
    for_runs(begin, begin + count, [&](std::uint64_t block, std::uint64_t first, std::size_t length, std::size_t runs) {
      encode_runs(rounding, {in_ + first, length, runs, &divisors_[block]}, range, codes + (first - begin));
    });
    if (bits_ != 8) pack_codes(buffer, count, bits_, out);
    if (column + count == line_) {
      const std::uint64_t used = (line_ * bits_ + 7) / 8;
      std::memset(codes_ + begin / line_ * line_bytes_ + used, 0, static_cast<std::size_t>(line_bytes_ - used));
    }
    begin += count;
  }
}

void quantize(ConstBytes in, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, MutableBytes out) {
  Quantizer quantizer(in, scheme, shape, out);
  quantizer.find_peaks(0, quantizer.size());
  quantizer.make_scales();
  quantizer.encode(0, quantizer.size());
}

}  // namespace weightstore::kernels
