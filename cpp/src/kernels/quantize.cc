// As the CPU backends of Burn quantize: ndarray in 0.20 and 0.21, flex since 0.22. Each step is done in the arithmetic
// of F32 and in their order, because the codes must be the same.

#include "kernels/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/quant_codes.h"
#include "weightstore/error.h"
#include "weightstore/kernels.h"

namespace weightstore::kernels {
namespace {

struct CodeRange {
  float least;
  float most;
};

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

// Which elements share a scale.
class Blocks {
 public:
  // Throws Error(kInvalidArgument) when a dimension is not a whole number of blocks.
  Blocks(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape) {
    std::uint64_t run = 1;
    for (std::size_t i = shape.size(); i-- > 0;) {
      size_ *= shape[i];
      const std::size_t from_end = shape.size() - i;
      const std::uint64_t block = from_end <= scheme.block.size() ? scheme.block[scheme.block.size() - from_end] : 1;
      if (scheme.block_scale && shape[i] % block != 0) {
        throw Error(ErrorCode::kInvalidArgument, "dimension " + std::to_string(i) + " has " + std::to_string(shape[i]) +
                                                     " elements, not a whole number of " + "blocks of " +
                                                     std::to_string(block) + " (" + to_string(scheme) + ")");
      }
      axes_.push_back({shape[i], block, count_});
      count_ *= shape[i] / block;
      run *= block;
    }
    const bool is_rectangle = scheme.block_scale && traits_of(scheme.release).blocks_are_rectangles;
    if (is_rectangle) return;
    if (!scheme.block_scale) {
      count_ = 1;
      run = std::max<std::uint64_t>(size_, 1);
    }
    axes_ = {{size_, run, 1}};
  }

  std::uint64_t size() const { return size_; }
  std::uint64_t count() const { return count_; }

  // Calls work(block, first, elements) for all elements: runs of neighbours in the same block.
  template <class Work>
  void for_runs(const Work& work) const {
    if (size_ == 0) return;
    const Axis inner = axes_.empty() ? Axis{1, 1, 1} : axes_.front();
    for (std::uint64_t first = 0; first < size_; first += inner.size) {
      std::uint64_t block = 0;
      std::uint64_t row = first / inner.size;
      for (std::size_t i = 1; i < axes_.size(); ++i) {
        block += row % axes_[i].size / axes_[i].block * axes_[i].stride;
        row /= axes_[i].size;
      }
      for (std::uint64_t column = 0; column < inner.size; column += inner.block) {
        const std::uint64_t elements = std::min(inner.block, inner.size - column);
        work(block + column / inner.block, first + column, static_cast<std::size_t>(elements));
      }
    }
  }

 private:
  struct Axis {
    std::uint64_t size;
    std::uint64_t block;
    std::uint64_t stride;  // of blocks
  };
  std::vector<Axis> axes_;  // the innermost one first
  std::uint64_t size_ = 1;
  std::uint64_t count_ = 1;
};

// The bits of the largest magnitude. Those of NaN and infinity are the largest.
std::uint32_t peak_of(const float* in, std::size_t count) {
  std::uint32_t peak = 0;
  for (std::size_t i = 0; i < count; ++i) peak = std::max(peak, std::bit_cast<std::uint32_t>(in[i]) & 0x7fff'ffffu);
  return peak;
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

// Half away from zero, as Rust's f32::round().
float round_away(float x) {
  const float whole = std::trunc(x);
  return std::fabs(x - whole) >= 0.5f ? whole + std::copysign(1.0f, x) : whole;
}

// Half to even, for magnitudes below 2^22: a sum this large keeps no fraction.
float round_even(float x) { return (x + 12'582'912.0f) - 12'582'912.0f; }

void encode(const float* in, std::size_t count, float divisor, const CodeRange& range, BurnRelease release,
            std::int8_t* out) {
  const float inverse = 1.0f / divisor;
  for (std::size_t i = 0; i < count; ++i) {
    float code;
    if (release >= BurnRelease::k023) {
      code = round_even(std::clamp(in[i] / divisor, range.least, range.most));
    } else {
      const float scaled = release == BurnRelease::k022 ? in[i] * inverse : in[i] / divisor;
      code = std::clamp(round_away(scaled), range.least, range.most);
    }
    out[i] = static_cast<std::int8_t>(code);
  }
}

// Codes into little-endian words, the first code in the lowest bits. Each line begins a word.
void pack(const std::vector<std::int8_t>& codes, unsigned bits, std::uint64_t line, MutableBytes out) {
  const std::uint64_t line_bytes = (line * bits + 31) / 32 * 4;
  const unsigned mask = (1u << bits) - 1;
  std::fill(out.begin(), out.end(), std::byte{0});
  for (std::uint64_t i = 0; i < codes.size(); ++i) {
    const std::uint64_t bit = i % line * bits;
    out[i / line * line_bytes + bit / 8] |= static_cast<std::byte>((static_cast<unsigned>(codes[i]) & mask) << bit % 8);
  }
}

}  // namespace

void check_quantize(std::uint64_t in_bytes, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape,
                    std::uint64_t out_bytes) {
  check_scheme(scheme);
  const std::uint64_t length = payload_bytes(scheme, shape);
  const Blocks blocks(scheme, shape);
  if (in_bytes == blocks.size() * 4 && out_bytes == length) return;
  throw Error(ErrorCode::kInvalidArgument, std::to_string(in_bytes) + " bytes of F32 to " + std::to_string(out_bytes) +
                                               " bytes; a tensor of this shape has " +
                                               std::to_string(blocks.size() * 4) + " and takes " +
                                               std::to_string(length));
}

void quantize(ConstBytes in, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, MutableBytes out) {
  check_quantize(in.size(), scheme, shape, out.size());
  const Blocks blocks(scheme, shape);
  const auto* numbers = reinterpret_cast<const float*>(in.data());
  std::vector<std::uint32_t> peaks(blocks.count());
  blocks.for_runs([&](std::uint64_t block, std::uint64_t first, std::size_t count) {
    peaks[block] = std::max(peaks[block], peak_of(numbers + first, count));
  });
  const CodeRange range = range_of(scheme.value);
  std::vector<float> divisors(blocks.count());
  const MutableBytes stored = out.last(blocks.count() * 4);
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const Scale scale = scale_for(peaks[i], range, scheme.release);
    divisors[i] = scale.divisor;
    std::memcpy(&stored[4 * i], &scale.stored, 4);
  }

  const bool is_packed = scheme.store == QuantStore::kPackedU32;
  const MutableBytes values = out.first(out.size() - stored.size());
  std::vector<std::int8_t> unpacked(is_packed ? blocks.size() : 0);
  auto* codes = is_packed ? unpacked.data() : reinterpret_cast<std::int8_t*>(values.data());
  blocks.for_runs([&](std::uint64_t block, std::uint64_t first, std::size_t count) {
    encode(numbers + first, count, divisors[block], range, scheme.release, codes + first);
  });
  if (!is_packed) {
    // 0.20 counts whole words.
    std::fill(values.begin() + static_cast<std::ptrdiff_t>(blocks.size()), values.end(), std::byte{0});
  } else if (blocks.size() != 0) {
    const bool has_lines = traits_of(scheme.release).has_two_level_scales && !shape.empty();
    pack(unpacked, value_bits(scheme.value), has_lines ? shape.back() : blocks.size(), values);
  }
}

}  // namespace weightstore::kernels
