#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "kernels/cast_kernels.h"
#include "weightstore/error.h"
#include "weightstore/kernels.h"

using namespace weightstore;

namespace {

constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64};

template <class To, class From>
std::vector<To> casted(const std::vector<From>& in, DType from, DType to) {
  std::vector<To> out(in.size());
  kernels::cast(std::as_bytes(std::span(in)), from, to, std::as_writable_bytes(std::span(out)));
  return out;
}

template <class To, class From>
To one(From in, DType from, DType to) {
  return casted<To>(std::vector<From>{in}, from, to)[0];
}

std::uint16_t f16(float value) { return one<std::uint16_t>(value, DType::kF32, DType::kF16); }
std::uint16_t bf16(float value) { return one<std::uint16_t>(value, DType::kF32, DType::kBF16); }
float of_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// What a 16-bit pattern means, by the definition of the format.
double meaning(std::uint16_t bits, int exponent_bits, int fraction_bits) {
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - fraction_bits);
  return sign * std::ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits);
}

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> patterns(65536);
  for (std::size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<std::uint16_t>(i);
  return patterns;
}

// Any bits, and more of those at which something changes.
std::vector<std::byte> numbers(DType dtype, std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count * bits_of(dtype) / 8);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = random();
    if (dtype == DType::kF64 && i % 2 == 0) {
      bits = std::bit_cast<std::uint64_t>(static_cast<double>(of_bits(static_cast<std::uint32_t>(bits))));
    }
    if (dtype == DType::kF32 && i % 2 == 0) bits &= 0xffff'f000u;  // ties of both 16-bit types
    if (dtype == DType::kF32 && i % 8 == 0) bits = (bits & 0x8fff'ffffu) | 0x3000'0000u;
    std::memcpy(bytes.data() + i * bits_of(dtype) / 8, &bits, bits_of(dtype) / 8);
  }
  return bytes;
}

}  // namespace

TEST(golden_f16) {
  CHECK_EQ(f16(0.0f), 0x0000);
  CHECK_EQ(f16(-0.0f), 0x8000);
  CHECK_EQ(f16(1.0f), 0x3c00);
  CHECK_EQ(f16(-2.0f), 0xc000);
  CHECK_EQ(f16(0.1f), 0x2e66);
  CHECK_EQ(f16(65504.0f), 0x7bff);
  CHECK_EQ(f16(65519.99f), 0x7bff);
  CHECK_EQ(f16(65520.0f), 0x7c00);  // halfway to 65536, which is even
  CHECK_EQ(f16(-1e30f), 0xfc00);
  CHECK_EQ(f16(1.0f + 0x1p-11f), 0x3c00);      // a tie, to even below
  CHECK_EQ(f16(1.0f + 3 * 0x1p-11f), 0x3c02);  // a tie, to even above
  CHECK_EQ(f16(1.0f + 0x1p-11f + 0x1p-23f), 0x3c01);
  CHECK_EQ(f16(0x1p-14f), 0x0400);             // the least normal number
  CHECK_EQ(f16(0x1p-14f - 0x1p-25f), 0x0400);  // the tie below it
  CHECK_EQ(f16(0x1p-24f), 0x0001);
  CHECK_EQ(f16(0x1p-25f), 0x0000);  // a tie, to even
  CHECK_EQ(f16(0x1.8p-25f), 0x0001);
  CHECK_EQ(f16(3 * 0x1p-25f), 0x0002);
  CHECK_EQ(f16(0x1p-149f), 0x0000);
  CHECK_EQ(f16(of_bits(0x7f80'0000)), 0x7c00);
  CHECK_EQ(f16(of_bits(0x7f80'0001)), 0x7e00);  // signaling, payload out of sight
  CHECK_EQ(f16(of_bits(0xffc0'2000)), 0xfe01);
}

TEST(golden_bf16) {
  CHECK_EQ(bf16(0.0f), 0x0000);
  CHECK_EQ(bf16(-0.0f), 0x8000);
  CHECK_EQ(bf16(1.0f), 0x3f80);
  CHECK_EQ(bf16(0.1f), 0x3dcd);
  CHECK_EQ(bf16(of_bits(0x3f80'8000)), 0x3f80);  // ties
  CHECK_EQ(bf16(of_bits(0x3f81'8000)), 0x3f82);
  CHECK_EQ(bf16(of_bits(0x3f80'8001)), 0x3f81);
  CHECK_EQ(bf16(of_bits(0x7f7f'7fff)), 0x7f7f);
  CHECK_EQ(bf16(of_bits(0x7f7f'8000)), 0x7f80);  // overflow
  CHECK_EQ(bf16(of_bits(0xff7f'ffff)), 0xff80);
  CHECK_EQ(bf16(of_bits(0x0000'8000)), 0x0000);  // subnormal ties
  CHECK_EQ(bf16(of_bits(0x0001'8000)), 0x0002);
  CHECK_EQ(bf16(of_bits(0x7f80'0000)), 0x7f80);
  CHECK_EQ(bf16(of_bits(0x7f80'0001)), 0x7fc0);
  CHECK_EQ(bf16(of_bits(0xffff'ffff)), 0xffff);
}

TEST(golden_f64) {
  CHECK_EQ(one<float>(0.1, DType::kF64, DType::kF32), 0.1f);
  CHECK_EQ(one<double>(0.1f, DType::kF32, DType::kF64), static_cast<double>(0.1f));
  CHECK_EQ(one<float>(1e300, DType::kF64, DType::kF32), std::numeric_limits<float>::infinity());
  CHECK_EQ(one<float>(1e-45, DType::kF64, DType::kF32), 0x1p-149f);
  // Through F32: just above a tie of F16, but a tie once it is F32.
  CHECK_EQ(one<std::uint16_t>(1.0 + 0x1p-11 + 0x1p-40, DType::kF64, DType::kF16), 0x3c00);
  CHECK_EQ(one<std::uint16_t>(1.0 + 0x1p-8 + 0x1p-40, DType::kF64, DType::kBF16), 0x3f80);
}

TEST(every_16_bit_pattern_means_what_it_should) {
  const auto patterns = all_patterns();
  for (const DType from : {DType::kF16, DType::kBF16}) {
    const bool half = from == DType::kF16;
    const auto floats = casted<float>(patterns, from, DType::kF32);
    const auto doubles = casted<double>(patterns, from, DType::kF64);
    for (const std::uint16_t bits : patterns) {
      const double expected = meaning(bits, half ? 5 : 8, half ? 10 : 7);
      if (std::isnan(expected)) {
        CHECK(std::isnan(floats[bits]) && std::isnan(doubles[bits]));
      } else {
        CHECK_EQ(static_cast<double>(floats[bits]), expected);
        CHECK_EQ(doubles[bits], expected);
        CHECK_EQ(std::signbit(floats[bits]), (bits & 0x8000) != 0);
      }
    }
  }
}

TEST(every_16_bit_pattern_survives_a_wider_type) {
  const auto patterns = all_patterns();
  for (const DType narrow : {DType::kF16, DType::kBF16}) {
    auto expected = patterns;
    const unsigned infinity = narrow == DType::kF16 ? 0x7c00 : 0x7f80;
    const unsigned quiet = narrow == DType::kF16 ? 0x0200 : 0x0040;
    for (std::uint16_t& bits : expected) {
      if ((bits & 0x7fffu) > infinity) bits = static_cast<std::uint16_t>(bits | quiet);
    }
    CHECK(casted<std::uint16_t>(casted<float>(patterns, narrow, DType::kF32), DType::kF32, narrow) == expected);
    CHECK(casted<std::uint16_t>(casted<double>(patterns, narrow, DType::kF64), DType::kF64, narrow) == expected);
  }
}

// No F32 between two neighbours of a 16-bit type is given to the farther one.
TEST(rounding_is_to_the_nearest_between_all_neighbours) {
  for (const DType to : {DType::kF16, DType::kBF16}) {
    const bool half = to == DType::kF16;
    const unsigned infinity = half ? 0x7c00 : 0x7f80;
    std::vector<float> ties;
    for (unsigned bits = 0; bits + 1 < infinity; ++bits) {
      const double low = meaning(static_cast<std::uint16_t>(bits), half ? 5 : 8, half ? 10 : 7);
      const double high = meaning(static_cast<std::uint16_t>(bits + 1), half ? 5 : 8, half ? 10 : 7);
      ties.push_back(static_cast<float>((low + high) / 2));  // exact: F32 has more digits
    }
    std::vector<float> below = ties;
    std::vector<float> above = ties;
    for (float& tie : below) tie = std::nextafter(tie, 0.0f);
    for (float& tie : above) tie = std::nextafter(tie, std::numeric_limits<float>::infinity());
    const auto at = casted<std::uint16_t>(ties, DType::kF32, to);
    const auto under = casted<std::uint16_t>(below, DType::kF32, to);
    const auto over = casted<std::uint16_t>(above, DType::kF32, to);
    for (unsigned bits = 0; bits < ties.size(); ++bits) {
      CHECK_EQ(unsigned{under[bits]}, bits);
      CHECK_EQ(unsigned{at[bits]}, bits + bits % 2);
      CHECK_EQ(unsigned{over[bits]}, bits + 1);
    }
  }
}

TEST(vector_and_portable_kernels_agree) {
  for (const DType from : kTypes) {
    for (const DType to : kTypes) {
      const auto portable = kernels::portable_cast(from, to);
      CHECK_EQ(portable == nullptr, from == to);
      const auto vector = kernels::vector_cast(from, to);
      if (portable == nullptr || vector == nullptr) continue;
      const std::size_t to_bytes = bits_of(to) / 8;
      // Past the size from which stores go around the caches, and not a multiple of anything.
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{17}, std::size_t{300'001}}) {
        const auto in = numbers(from, count, 7);
        std::vector<std::byte> expected(count * to_bytes);
        portable(in.data(), expected.data(), count);
        for (const std::size_t shift : {0, 1, 2, 8}) {
          std::vector<std::byte> shifted(in.size() + shift);
          std::copy(in.begin(), in.end(), shifted.begin() + static_cast<std::ptrdiff_t>(shift));
          std::vector<std::byte> out(shift + expected.size() + 1, std::byte{0x77});
          vector(shifted.data() + shift, out.data() + shift, count);
          CHECK(std::equal(expected.begin(), expected.end(), out.begin() + static_cast<std::ptrdiff_t>(shift)));
          CHECK(out.back() == std::byte{0x77});
        }
      }
    }
  }
}

TEST(the_same_type_is_a_copy) {
  const auto in = numbers(DType::kF32, 1001, 5);
  std::vector<std::byte> out(in.size());
  kernels::cast(in, DType::kF32, DType::kF32, out);
  CHECK(out == in);
  std::ranges::fill(out, std::byte{0});
  kernels::cast(in, DType::kFlex32, DType::kF32, out);
  CHECK(out == in);
}

TEST(what_cannot_be_cast_is_refused) {
  CHECK(can_cast(DType::kF16, DType::kF16));
  CHECK(can_cast(DType::kFlex32, DType::kBF16));
  CHECK(!can_cast(DType::kI32, DType::kF32));
  CHECK(!can_cast(DType::kI32, DType::kI32));
  CHECK(!can_cast(DType::kF32, DType::kF8_E4M3));
  std::vector<std::byte> bytes(8);
  std::vector<std::byte> out(4);
  const Error error = CHECK_THROWS(Error, kernels::cast(bytes, DType::kI64, DType::kF32, out));
  CHECK(error.code() == ErrorCode::kUnsupported);
  CHECK(error.message().find("I64") != std::string::npos);
  CHECK(CHECK_THROWS(Error, kernels::cast(ConstBytes(bytes).first(7), DType::kF32, DType::kF16, out)).code() ==
        ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, kernels::cast(bytes, DType::kF32, DType::kF64, out)).code() == ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, cast_size(~0ull - 1, DType::kF16, DType::kF64)).code() == ErrorCode::kInvalidArgument);
  CHECK_EQ(cast_size(12, DType::kF32, DType::kF64), 24u);
}

RUN_TESTS()
