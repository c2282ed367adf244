// Quantized tensors that are large enough for several threads and several tiles, against element by element readings of
// docs/formats.md, "Quantized tensors".

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "check.h"
#include "weightstore/error.h"
#include "weightstore/transform.h"

using namespace weightstore;

namespace {

using Bytes = std::vector<std::byte>;
using Shape = std::vector<std::uint64_t>;

unsigned bits_of(QuantValue value) {
  using enum QuantValue;
  if (value == kQ2S || value == kQ2F) return 2;
  return value == kQ4S || value == kQ4F || value == kE2M1 ? 4 : 8;
}

// How far codes are apart.
unsigned distance_of(const QuantScheme& scheme) {
  if (scheme.store == QuantStore::kPackedU32) return bits_of(scheme.value);
  return scheme.store == QuantStore::kPackedNative && scheme.value == QuantValue::kE2M1 ? 4 : 8;
}

QuantScheme scheme_of(QuantValue value, QuantStore store, std::uint64_t packed_dim, std::vector<std::uint8_t> block,
                      BurnRelease release) {
  QuantScheme scheme;
  scheme.release = release;
  scheme.value = value;
  scheme.store = store;
  scheme.packed_dim = packed_dim;
  if (!block.empty()) {
    scheme.tensor_scale.reset();
    scheme.block_scale = QuantParam::kF32;
    scheme.block = std::move(block);
  }
  return scheme;
}

std::uint64_t size_of(const Shape& shape) {
  std::uint64_t size = 1;
  for (const std::uint64_t dimension : shape) size *= dimension;
  return size;
}

struct Element {
  std::uint64_t bit;    // where its code is
  std::uint64_t scale;  // which of the scales it has
};

// Where each element is, by the rules of 0.22 and later: codes and scales are in row-major order, after the packed
// dimension has been exchanged with the innermost one.
class Places {
 public:
  Places(const QuantScheme& scheme, const Shape& shape) : shape_(shape), axes_(shape.size()) {
    bits = distance_of(scheme);
    const std::uint64_t unit = scheme.store == QuantStore::kPackedU32 ? 32 / bits : 8 / bits;
    const std::size_t packed = shape.size() - 1 - scheme.packed_dim;
    std::uint64_t code_stride = bits;
    for (std::size_t i = shape.size(); i-- > 0;) {
      const std::size_t at = i == packed ? shape.size() - 1 : i == shape.size() - 1 ? packed : i;
      const std::size_t from_end = shape.size() - at;
      const std::uint64_t block =
          from_end <= scheme.block.size() ? scheme.block[scheme.block.size() - from_end] : std::uint64_t{1};
      axes_[at] = {code_stride, scheme.block_scale ? scales : 0, block};
      code_stride *= at == packed ? (shape[at] + unit - 1) / unit * unit : shape[at];
      if (scheme.block_scale) scales *= (shape[at] + block - 1) / block;
    }
  }

  Element operator[](std::uint64_t number) const {
    Element element{0, 0};
    for (std::size_t i = shape_.size(); i-- > 0; number /= shape_[i]) {
      const std::uint64_t index = number % shape_[i];
      element.bit += index * axes_[i].code_stride;
      element.scale += index / axes_[i].block * axes_[i].scale_stride;
    }
    return element;
  }

  unsigned bits;
  std::uint64_t scales = 1;

 private:
  struct Axis {
    std::uint64_t code_stride;
    std::uint64_t scale_stride;
    std::uint64_t block;
  };
  const Shape shape_;
  std::vector<Axis> axes_;
};

// What a code stands for.
float value_of(QuantValue value, unsigned bits, int field) {
  using enum QuantValue;
  if (value != kE4M3 && value != kE5M2 && value != kE2M1) {
    return static_cast<float>(field >= 1 << (bits - 1) ? field - (1 << bits) : field);
  }
  const int mantissa_bits = value == kE4M3 ? 3 : value == kE5M2 ? 2 : 1;
  const int exponent_bits = value == kE4M3 ? 4 : value == kE5M2 ? 5 : 2;
  const int mantissa = field & ((1 << mantissa_bits) - 1);
  const int exponent = field >> mantissa_bits & ((1 << exponent_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const bool is_negative = (field >> (mantissa_bits + exponent_bits) & 1) != 0;
  if (value == kE4M3 && (field & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  float magnitude = std::ldexp(static_cast<float>(mantissa + (exponent == 0 ? 0 : 1 << mantissa_bits)),
                               std::max(exponent, 1) - bias - mantissa_bits);
  if (value == kE5M2 && exponent == 31) {
    magnitude = mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  }
  return is_negative ? -magnitude : magnitude;
}

float number_at(const Bytes& payload, std::uint64_t bit, const QuantScheme& scheme) {
  const unsigned bits = scheme.store == QuantStore::kNative ? 8 : bits_of(scheme.value);
  return value_of(scheme.value, bits, static_cast<int>(payload[bit / 8]) >> (bit % 8) & ((1 << bits) - 1));
}

bool same(float a, float b) { return std::memcmp(&a, &b, 4) == 0 || (std::isnan(a) && std::isnan(b)); }

std::vector<float> random_numbers(std::uint64_t count) {
  std::vector<float> numbers(count);
  std::uint32_t state = 7;
  for (float& number : numbers) {
    state = state * 1664525 + 1013904223;
    number = static_cast<float>(state >> 8) * 0x1p-23f - 1;
  }
  return numbers;
}

void check_numbers(const QuantScheme& scheme, const Shape& shape) {
  const Places places(scheme, shape);
  const std::uint64_t scales = places.scales;
  Bytes payload(payload_bytes(scheme, shape));
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<std::byte>(i * 167 >> 3);
  const std::vector<float> made = random_numbers(scales);
  std::memcpy(payload.data() + payload.size() - 4 * scales, made.data(), 4 * scales);
  const std::uint64_t size = size_of(shape);
  std::vector<float> expected(size);
  for (std::uint64_t i = 0; i < size; ++i) {
    const Element at = places[i];
    expected[i] = made[at.scale] * number_at(payload, at.bit, scheme);
  }
  const std::uint64_t firsts[] = {0, shape.back(), 3 * shape.back() + 5, size / 2 + 1};
  for (const std::uint64_t first : firsts) {
    for (const unsigned threads : {1u, 3u}) {
      std::vector<float> found(size - first, -1);
      dequantize(payload, scheme, shape, DType::kF32, first, std::as_writable_bytes(std::span(found)), threads);
      CHECK(std::equal(found.begin(), found.end(), expected.begin() + static_cast<std::ptrdiff_t>(first), same));
    }
  }
}

}  // namespace

TEST(numbers_of_packed_columns) {
  using enum QuantValue;
  for (const QuantValue value : {kQ8S, kQ4S, kQ2S, kE4M3, kE5M2, kE2M1}) {
    check_numbers(scheme_of(value, QuantStore::kPackedU32, 1, {}, BurnRelease::k022), {1100, 260});
    // More rows than a tile has, more columns, neither.
    for (const Shape& shape : {Shape{1100, 9}, Shape{70, 1030}, Shape{3, 70, 15}}) {
      check_numbers(scheme_of(value, QuantStore::kPackedU32, 1, {}, BurnRelease::k022), shape);
      check_numbers(scheme_of(value, QuantStore::kPackedU32, 1, {32}, BurnRelease::k022), shape);
      check_numbers(scheme_of(value, QuantStore::kPackedU32, 1, {3, 16}, BurnRelease::k023), shape);
    }
    check_numbers(scheme_of(value, QuantStore::kPackedU32, 2, {2, 5}, BurnRelease::k022), {33, 9, 40});
    check_numbers(scheme_of(value, QuantStore::kPackedU32, 0, {2, 5}, BurnRelease::k022), {33, 9, 40});
  }
  check_numbers(scheme_of(kQ4S, QuantStore::kNative, 0, {3, 16}, BurnRelease::k022), {1100, 1});
}

TEST(packed_columns_of_other_types) {
  for (const Shape& shape : {Shape{1100, 70}, Shape{90, 1030}}) {
    const QuantScheme scheme = scheme_of(QuantValue::kQ4S, QuantStore::kPackedU32, 1, {2, 16}, BurnRelease::k023);
    Bytes payload(payload_bytes(scheme, shape), std::byte{0x3e});
    for (std::size_t i = 0; i < size_of(shape) / 2; ++i) payload[i] = static_cast<std::byte>(i * 167 >> 3);
    std::vector<float> numbers(size_of(shape));
    dequantize(payload, scheme, shape, DType::kF32, 0, std::as_writable_bytes(std::span(numbers)));
    for (const std::uint64_t first : {std::uint64_t{0}, shape.back() + 3}) {
      const auto expected = std::span(numbers).subspan(first);
      std::vector<double> found(expected.size());
      dequantize(payload, scheme, shape, DType::kF64, first, std::as_writable_bytes(std::span(found)));
      CHECK(std::equal(found.begin(), found.end(), expected.begin(), expected.end()));
    }
  }
}

TEST(numbers_of_every_store) {
  using enum QuantValue;
  const auto check_stores = [](QuantValue value, const std::vector<std::uint8_t>& block, const Shape& shape) {
    check_numbers(scheme_of(value, QuantStore::kNative, 0, block, BurnRelease::k023), shape);
    for (const std::uint64_t packed_dim : {0, 1}) {
      check_numbers(scheme_of(value, QuantStore::kPackedNative, packed_dim, block, BurnRelease::k023), shape);
      check_numbers(scheme_of(value, QuantStore::kPackedU32, packed_dim, block, BurnRelease::k023), shape);
    }
  };
  for (const QuantValue value : {kQ8S, kQ4S, kQ2S, kE4M3, kE5M2, kE2M1}) {
    // Blocks and rows of whole vectors, and others.
    for (const std::vector<std::uint8_t>& block : {std::vector<std::uint8_t>{}, {1}, {5}, {16}, {3, 24}, {20, 7}}) {
      check_stores(value, block, {90, 80});
      check_stores(value, block, {35, 283});
    }
    check_stores(value, {2, 16}, {257, 1040});  // large enough to be streamed
  }
}

namespace {

// Quantizes one element at a time.
Bytes quantized(const std::vector<float>& numbers, const QuantScheme& scheme, const Shape& shape) {
  Bytes payload(payload_bytes(scheme, shape));
  const Places places(scheme, shape);
  const std::uint64_t scales = places.scales;
  const unsigned bits = bits_of(scheme.value);
  const auto most = static_cast<float>((1 << (bits - 1)) - 1);
  std::vector<float> peaks(scales);
  for (std::uint64_t i = 0; i < numbers.size(); ++i) {
    float& peak = peaks[places[i].scale];
    peak = std::max(peak, std::fabs(numbers[i]));
  }
  for (std::uint64_t i = 0; i < scales; ++i) {
    const float scale = 2 * peaks[i] / (2 * most);
    peaks[i] = scale > 0 ? scale : std::numeric_limits<float>::min();
    std::memcpy(payload.data() + payload.size() - 4 * (scales - i), &peaks[i], 4);
  }
  for (std::uint64_t i = 0; i < numbers.size(); ++i) {
    const Element at = places[i];
    const bool is_even = scheme.release >= BurnRelease::k023;
    const float scaled = is_even ? numbers[i] / peaks[at.scale] : numbers[i] * (1 / peaks[at.scale]);
    const float whole = is_even ? std::nearbyint(scaled) : std::round(scaled);
    const auto code = static_cast<unsigned>(static_cast<int>(std::clamp(whole, -most, most)));
    payload[at.bit / 8] |= static_cast<std::byte>((code & ((1u << places.bits) - 1)) << at.bit % 8);
  }
  return payload;
}

}  // namespace

TEST(quantized_on_any_number_of_threads) {
  using enum QuantValue;
  // The last dimension of the second shape is not a whole number of bytes.
  for (const Shape& shape : {Shape{1020, 1040}, Shape{1060, 1005}, Shape{1'100'005}}) {
    const std::vector<float> numbers = random_numbers(size_of(shape));
    for (const QuantValue value : {kQ8S, kQ4S, kQ2S}) {
      const BurnRelease release = value == kQ4S ? BurnRelease::k023 : BurnRelease::k022;
      for (const QuantStore store : {QuantStore::kNative, QuantStore::kPackedU32}) {
        for (const std::vector<std::uint8_t>& block : {std::vector<std::uint8_t>{}, {5}, {2, 5}}) {
          if (block.size() > shape.size()) continue;
          const QuantScheme scheme = scheme_of(value, store, 0, block, release);
          const Bytes expected = quantized(numbers, scheme, shape);
          for (const unsigned threads : {1u, 4u}) {
            Bytes found(expected.size(), std::byte{0xAA});
            quantize(std::as_bytes(std::span(numbers)), scheme, shape, found, threads);
            CHECK(found == expected);
          }
        }
      }
    }
  }
}

TEST(quantized_by_blocks_of_any_length) {
  using enum QuantValue;
  const std::vector<std::uint8_t> blocks[] = {{1},   {8},     {16},   {24},   {32},     {64},
                                              {192}, {2, 16}, {4, 8}, {6, 1}, {12, 192}};
  const Shape shape = {12, 7, 24, 192};
  const std::vector<float> numbers = random_numbers(size_of(shape));
  for (const BurnRelease release : {BurnRelease::k022, BurnRelease::k023}) {
    for (const QuantValue value : {kQ8S, kQ4S}) {
      for (const QuantStore store : {QuantStore::kNative, QuantStore::kPackedU32}) {
        for (const std::vector<std::uint8_t>& block : blocks) {
          const QuantScheme scheme = scheme_of(value, store, 0, block, release);
          const Bytes expected = quantized(numbers, scheme, shape);
          Bytes found(expected.size(), std::byte{0xAA});
          quantize(std::as_bytes(std::span(numbers)), scheme, shape, found);
          CHECK(found == expected);
        }
      }
    }
  }
}

TEST(numbers_around_halves) {
  std::vector<float> numbers = {127};  // so that the scale is 1
  for (int whole = -127; whole < 127; ++whole) {
    const float half = static_cast<float>(whole) + 0.5f;
    for (const float number : {half, std::nextafter(half, -1000.0f), std::nextafter(half, 1000.0f)}) {
      numbers.push_back(number);
    }
  }
  for (const BurnRelease release : {BurnRelease::k022, BurnRelease::k023}) {
    const QuantScheme scheme = scheme_of(QuantValue::kQ8S, QuantStore::kNative, 0, {}, release);
    const Shape shape = {numbers.size()};
    Bytes found(payload_bytes(scheme, shape));
    quantize(std::as_bytes(std::span(numbers)), scheme, shape, found);
    CHECK(found == quantized(numbers, scheme, shape));
  }
}

TEST(a_number_that_is_not_finite_is_found_by_any_thread) {
  std::vector<float> numbers = random_numbers(1'500'000);
  numbers[1'400'000] = NAN;
  const QuantScheme scheme = scheme_of(QuantValue::kQ8S, QuantStore::kNative, 0, {}, BurnRelease::k022);
  Bytes out(payload_bytes(scheme, {numbers.size()}));
  CHECK(CHECK_THROWS(Error, quantize(std::as_bytes(std::span(numbers)), scheme, {numbers.size()}, out)).code() ==
        ErrorCode::kInvalidArgument);
}

TEST(subnormal_numbers) {
  // The scale has no finite inverse.
  const std::vector<float> numbers = {0, 1e-40f, -1e-40f, 1e-45f};
  const QuantScheme scheme = scheme_of(QuantValue::kQ8S, QuantStore::kNative, 0, {}, BurnRelease::k022);
  Bytes out(payload_bytes(scheme, {4}));
  quantize(std::as_bytes(std::span(numbers)), scheme, {4}, out);
  CHECK(out[0] == std::byte{0});
  CHECK(out[1] == std::byte{127});
  CHECK(out[2] == std::byte{0x81});
}

RUN_TESTS()
