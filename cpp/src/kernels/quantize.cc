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

// On x86-64 the loops below are compiled twice: for every processor, and for those with AVX2. Neither fuses a
// multiplication with an addition, so that both round alike.
#if defined(__x86_64__)
#define WEIGHTSTORE_AVX2 __attribute__((target("avx2")))
bool has_avx2() {
  static const bool usable = __builtin_cpu_supports("avx2");
  return usable;
}
#else
#define WEIGHTSTORE_AVX2
bool has_avx2() { return false; }
#endif
#define WEIGHTSTORE_INLINE inline __attribute__((always_inline))

// The bits of the largest magnitude. Those of NaN and infinity are the largest.
WEIGHTSTORE_INLINE std::uint32_t find_peak(const float* in, std::size_t count) {
  std::uint32_t peak = 0;
  for (std::size_t i = 0; i < count; ++i) peak = std::max(peak, std::bit_cast<std::uint32_t>(in[i]) & 0x7fff'ffffu);
  return peak;
}

WEIGHTSTORE_AVX2 std::uint32_t find_peak_avx2(const float* in, std::size_t count) { return find_peak(in, count); }

std::uint32_t peak_of(const float* in, std::size_t count) {
  return has_avx2() ? find_peak_avx2(in, count) : find_peak(in, count);
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

enum class Rounding { kAwayOfQuotient, kAwayOfProduct, kEvenOfQuotient };

Rounding rounding_of(BurnRelease release) {
  if (release >= BurnRelease::k023) return Rounding::kEvenOfQuotient;
  return release == BurnRelease::k022 ? Rounding::kAwayOfProduct : Rounding::kAwayOfQuotient;
}

// Half away from zero, as Rust's f32::round(), for magnitudes below 2^31.
WEIGHTSTORE_INLINE int round_away(float x) {
  const int whole = static_cast<int>(x);
  const float rest = x - static_cast<float>(whole);
  return whole + (rest >= 0.5f ? 1 : 0) - (rest <= -0.5f ? 1 : 0);
}

// Half to even, for magnitudes below 2^22: a sum this large keeps no fraction.
WEIGHTSTORE_INLINE int round_even(float x) { return static_cast<int>((x + 12'582'912.0f) - 12'582'912.0f); }

// The ends of the range are whole numbers, so that it does not matter whether a number is rounded or limited first.
template <Rounding kRounding>
WEIGHTSTORE_INLINE void encode_as(const float* in, std::size_t count, float divisor, const CodeRange& range,
                                  std::int8_t* out) {
  const float inverse = 1.0f / divisor;
  const float least = range.least;
  const float most = range.most;
  for (std::size_t i = 0; i < count; ++i) {
    float scaled = kRounding == Rounding::kAwayOfProduct ? in[i] * inverse : in[i] / divisor;
    // The inverse of a subnormal scale may be infinite, and zero times infinity is no number. Rust makes it a zero.
    scaled = scaled == scaled ? scaled : 0.0f;
    scaled = scaled < least ? least : scaled;
    scaled = scaled > most ? most : scaled;
    out[i] = static_cast<std::int8_t>(kRounding == Rounding::kEvenOfQuotient ? round_even(scaled) : round_away(scaled));
  }
}

WEIGHTSTORE_INLINE void encode_by(Rounding rounding, const float* in, std::size_t count, float divisor,
                                  const CodeRange& range, std::int8_t* out) {
  switch (rounding) {
    case Rounding::kAwayOfQuotient:
      return encode_as<Rounding::kAwayOfQuotient>(in, count, divisor, range, out);
    case Rounding::kAwayOfProduct:
      return encode_as<Rounding::kAwayOfProduct>(in, count, divisor, range, out);
    case Rounding::kEvenOfQuotient:
      return encode_as<Rounding::kEvenOfQuotient>(in, count, divisor, range, out);
  }
}

WEIGHTSTORE_AVX2 void encode_avx2(Rounding rounding, const float* in, std::size_t count, float divisor,
                                  const CodeRange& range, std::int8_t* out) {
  encode_by(rounding, in, count, divisor, range, out);
}

void encode_run(Rounding rounding, const float* in, std::size_t count, float divisor, const CodeRange& range,
                std::int8_t* out) {
  if (has_avx2()) return encode_avx2(rounding, in, count, divisor, range, out);
  encode_by(rounding, in, count, divisor, range, out);
}

// Codes of kBits into bytes, the first code in the lowest bits. The last byte may be filled in part.
template <unsigned kBits>
void pack(const std::int8_t* codes, std::size_t count, std::uint8_t* out) {
  constexpr std::size_t kPerByte = 8 / kBits;
  constexpr unsigned kMask = (1u << kBits) - 1;
  const auto byte_of = [&](std::size_t first, std::size_t length) {
    unsigned byte = 0;
    for (std::size_t i = 0; i < length; ++i) byte |= (static_cast<unsigned>(codes[first + i]) & kMask) << (i * kBits);
    return static_cast<std::uint8_t>(byte);
  };
  const std::size_t whole = count / kPerByte;
  for (std::size_t i = 0; i < whole; ++i) out[i] = byte_of(i * kPerByte, kPerByte);
  if (count % kPerByte != 0) out[whole] = byte_of(whole * kPerByte, count % kPerByte);
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
    return;
  }
  std::uint64_t stride = 1;
  for (std::size_t from_end = 1; from_end <= shape.size(); ++from_end) {
    const std::uint64_t dimension = shape[shape.size() - from_end];
    const std::uint64_t block = block_of(scheme, from_end);
    axes_.push_back({dimension, block, stride});
    stride *= dimension / block;
  }
}

// Calls work(block, first, count) for runs of neighbours in the same block.
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
      const std::uint64_t count = std::min(row_end - begin, inner.block - column % inner.block);
      work(block + column / inner.block, begin, static_cast<std::size_t>(count));
      begin += count;
      column += count;
    }
  }
}

void Quantizer::find_peaks(std::uint64_t begin, std::uint64_t end) {
  for_runs(begin, end, [&](std::uint64_t block, std::uint64_t first, std::size_t count) {
    const std::uint32_t found = peak_of(in_ + first, count);
    // Other threads may have elements of the same block. The largest is the same in any order.
    const std::atomic_ref<std::uint32_t> peak(peaks_[block]);
    std::uint32_t known = peak.load(std::memory_order_relaxed);
    while (known < found && !peak.compare_exchange_weak(known, found, std::memory_order_relaxed)) {
    }
  });
}

void Quantizer::make_scales() {
  const CodeRange range = range_of(scheme_.value);
  for (std::size_t i = 0; i < peaks_.size(); ++i) {
    const Scale scale = scale_for(peaks_[i], range, scheme_.release);
    divisors_[i] = scale.divisor;
    std::memcpy(&scales_[sizeof(float) * i], &scale.stored, sizeof(float));
  }
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
    for_runs(begin, begin + count, [&](std::uint64_t block, std::uint64_t first, std::size_t run) {
      encode_run(rounding, in_ + first, run, divisors_[block], range, codes + (first - begin));
    });
    if (bits_ == 4) pack<4>(buffer, count, out);
    if (bits_ == 2) pack<2>(buffer, count, out);
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
