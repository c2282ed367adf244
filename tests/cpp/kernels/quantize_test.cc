#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "check.h"
#include "kernels/quant_codes.h"
#include "weightstore/error.h"
#include "weightstore/kernels.h"

using namespace weightstore;

namespace {

using Bytes = std::vector<std::byte>;

Bytes payload_of(const std::vector<int>& codes, const std::vector<float>& scales) {
  Bytes payload;
  for (const int code : codes) payload.push_back(static_cast<std::byte>(code));
  for (const float scale : scales) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&scale);
    payload.insert(payload.end(), bytes, bytes + 4);
  }
  return payload;
}

QuantScheme scheme_of(QuantValue value, BurnRelease release, std::vector<std::uint8_t> block = {}) {
  QuantScheme scheme;
  scheme.value = value;
  scheme.store = QuantStore::kNative;
  if (!block.empty()) {
    scheme.tensor_scale.reset();
    scheme.block_scale = QuantParam::kF32;
    scheme.block = std::move(block);
  }
  return *as_release(scheme, release);
}

std::vector<float> decode(const Bytes& payload, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape,
                          std::uint64_t first, std::size_t count) {
  // One byte behind, so that the output is not aligned.
  Bytes out(count * 4 + 1);
  kernels::dequantize(payload, scheme, shape, DType::kF32, first, MutableBytes(out).subspan(1));
  std::vector<float> numbers(count);
  if (count != 0) std::memcpy(numbers.data(), out.data() + 1, count * 4);
  return numbers;
}

Bytes encode(const std::vector<float>& numbers, const QuantScheme& scheme, const std::vector<std::uint64_t>& shape) {
  Bytes out(payload_bytes(scheme, shape));
  kernels::quantize(std::as_bytes(std::span(numbers)), scheme, shape, out);
  return out;
}

}  // namespace

TEST(minifloats) {
  CHECK_EQ(kernels::e4m3_value(0x7E), 448.0f);
  CHECK_EQ(kernels::e4m3_value(0x01), 0x1p-9f);
  CHECK_EQ(kernels::e4m3_value(0xC4), -3.0f);
  CHECK(std::isnan(kernels::e4m3_value(0x7F)));
  CHECK_EQ(kernels::e5m2_value(0x7B), 57344.0f);
  CHECK_EQ(kernels::e5m2_value(0x01), 0x1p-16f);
  CHECK(std::isinf(kernels::e5m2_value(0x7C)));
  CHECK_EQ(kernels::e2m1_value(0xD), -3.0f);
  CHECK_EQ(kernels::e2m1_value(0xF1), 0.5f);
  CHECK_EQ(kernels::ue8m0_value(127), 1.0f);
  CHECK_EQ(kernels::ue8m0_value(0), 0x1p-127f);
  CHECK_EQ(kernels::ue8m0_value(254), 0x1p127f);
  CHECK(std::isnan(kernels::ue8m0_value(255)));
}

TEST(any_range_of_elements) {
  const std::vector<std::uint64_t> shape = {3, 20};
  std::vector<int> codes;
  for (int i = 0; i < 60; ++i) codes.push_back(i * 7 % 256 - 128);
  const Bytes payload = payload_of(codes, {1, 2, 4, 8, 16, 32});
  const QuantScheme scheme = scheme_of(QuantValue::kQ8S, BurnRelease::k022, {16});
  for (std::size_t first = 0; first < 60; ++first) {
    for (std::size_t count = 0; first + count <= 60; ++count) {
      const std::vector<float> numbers = decode(payload, scheme, shape, first, count);
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = first + i;
        const auto scale = static_cast<float>(1 << (at / 20 * 2 + at % 20 / 16));
        CHECK_EQ(numbers[i], scale * static_cast<float>(codes[at]));
      }
    }
  }
  Bytes out(4);
  CHECK(CHECK_THROWS(Error, kernels::dequantize(payload, scheme, shape, DType::kF32, 60, out)).code() ==
        ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, kernels::dequantize(payload, scheme, shape, DType::kI32, 0, out)).code() ==
        ErrorCode::kUnsupported);
  CHECK(CHECK_THROWS(Error, kernels::dequantize(payload, scheme, {3, 21}, DType::kF32, 0, out)).code() ==
        ErrorCode::kInvalidArgument);
}

TEST(releases_round_differently) {
  // The largest magnitude, 127, makes a scale of exactly one.
  const std::vector<float> numbers = {127, 0.5f, 1.5f, -0.5f, -2.5f, 2.4f};
  const std::vector<std::uint64_t> shape = {6};
  CHECK(encode(numbers, scheme_of(QuantValue::kQ8S, BurnRelease::k022), shape) ==
        payload_of({127, 1, 2, -1, -3, 2}, {1}));
  CHECK(encode(numbers, scheme_of(QuantValue::kQ8S, BurnRelease::k023), shape) ==
        payload_of({127, 0, 2, 0, -2, 2}, {1}));
}

TEST(blocks_of_zeros) {
  const std::vector<float> numbers = {0, 0, 7, -7};
  const float tiny = std::numeric_limits<float>::min();
  CHECK(encode(numbers, scheme_of(QuantValue::kQ4S, BurnRelease::k022, {2}), {4}) ==
        payload_of({0, 0, 7, -7}, {tiny, 1}));
  CHECK(encode(numbers, scheme_of(QuantValue::kQ8S, BurnRelease::k021, {2}), {4}) ==
        payload_of({0, 0, 127, -127}, {0, 14.0f / 254}));
}

TEST(codes_in_words) {
  QuantScheme scheme = scheme_of(QuantValue::kQ4S, BurnRelease::k022);
  scheme.store = QuantStore::kPackedU32;
  const Bytes payload = encode({7, -7, 1, 7, 2, 3}, scheme, {2, 3});
  CHECK(payload == payload_of({0x97, 0x01, 0, 0, 0x27, 0x03, 0, 0}, {1}));
  CHECK((decode(payload, scheme, {2, 3}, 0, 6) == std::vector<float>{7, -7, 1, 7, 2, 3}));
}

TEST(what_is_not_quantized) {
  const auto refusal = [](const std::vector<float>& numbers, const QuantScheme& scheme) {
    return CHECK_THROWS(Error, encode(numbers, scheme, {numbers.size()})).code();
  };
  CHECK(refusal({1, NAN}, scheme_of(QuantValue::kQ8S, BurnRelease::k022)) == ErrorCode::kInvalidArgument);
  CHECK(refusal({1, INFINITY}, scheme_of(QuantValue::kQ8S, BurnRelease::k022)) == ErrorCode::kInvalidArgument);
  CHECK(refusal({1, 2, 3}, scheme_of(QuantValue::kQ8S, BurnRelease::k022, {2})) == ErrorCode::kInvalidArgument);
  CHECK(refusal({1, 2}, scheme_of(QuantValue::kE4M3, BurnRelease::k023)) == ErrorCode::kUnsupported);
  QuantScheme half = scheme_of(QuantValue::kQ8S, BurnRelease::k022);
  half.tensor_scale = QuantParam::kF16;
  CHECK(refusal({1, 2}, half) == ErrorCode::kUnsupported);
}

RUN_TESTS()
