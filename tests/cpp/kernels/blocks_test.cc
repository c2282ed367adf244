// Types that are quantized in blocks: the vector kernels give the bits of the portable ones. tests/python/gguf_files
// compares with the gguf package.

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "check.h"
#include "kernels/blocks/decode_blocks.h"
#include "weightstore/error.h"
#include "weightstore/kernels.h"

using namespace weightstore;

namespace {

std::vector<DType> dequantized_types() {
  std::vector<DType> types;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (can_dequantize(static_cast<DType>(i))) types.push_back(static_cast<DType>(i));
  }
  return types;
}

std::vector<std::byte> random_blocks(DType dtype, std::size_t blocks) {
  std::mt19937 random(static_cast<unsigned>(dtype));
  std::vector<std::byte> bytes(blocks * block_of(dtype)->bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return (x != x && y != y) || std::memcmp(&x, &y, sizeof x) == 0; });
}

MutableBytes bytes_of_numbers(std::vector<float>& numbers) { return std::as_writable_bytes(std::span(numbers)); }

}  // namespace

TEST(all_types_but_those_that_are_carried) { CHECK_EQ(dequantized_types().size(), 16u); }

TEST(vector_kernels_give_the_bits_of_portable_ones) {
  constexpr std::size_t kBlocks = 200;
  for (const DType dtype : dequantized_types()) {
    const kernels::DecodeBlocks vector = kernels::vector_decoder(dtype);
    if (vector == nullptr) continue;
    const std::vector<std::byte> blocks = random_blocks(dtype, kBlocks);
    const std::size_t numbers = kBlocks * block_of(dtype)->elements;
    std::vector<float> portable(numbers);
    kernels::portable_decoder(dtype)(blocks.data(), kBlocks, portable.data());
    // Aligned to 32 bytes or not.
    for (std::size_t shift = 0; shift < 8; ++shift) {
      std::vector<float> found(numbers + 16);
      float* out = found.data() + shift;
      vector(blocks.data(), kBlocks, out);
      CHECK(same_bits(portable, std::vector<float>(out, out + numbers)));
    }
  }
}

TEST(any_range_is_part_of_the_whole) {
  for (const DType dtype : dequantized_types()) {
    const std::vector<std::byte> blocks = random_blocks(dtype, 3);
    std::vector<float> whole(3 * block_of(dtype)->elements);
    kernels::dequantize(blocks, dtype, DType::kF32, 0, bytes_of_numbers(whole));
    for (std::size_t first = 0; first < whole.size(); first += 7) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{40}, whole.size() - first}) {
        std::vector<float> part(std::min(count, whole.size() - first));
        kernels::dequantize(blocks, dtype, DType::kF32, first, bytes_of_numbers(part));
        const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(first);
        CHECK(same_bits(part, std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(part.size()))));
      }
    }
  }
}

TEST(wrong_arguments_are_errors) {
  std::vector<std::byte> blocks(34);
  std::vector<float> numbers(33);
  CHECK(CHECK_THROWS(Error, kernels::dequantize(blocks, DType::kQ8_0, DType::kF32, 0, bytes_of_numbers(numbers)))
            .code() == ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, kernels::dequantize(blocks, DType::kIQ2_S, DType::kF32, 0, {})).code() ==
        ErrorCode::kUnsupported);
  CHECK(CHECK_THROWS(Error, kernels::dequantize(blocks, DType::kF32, DType::kF32, 0, {})).code() ==
        ErrorCode::kUnsupported);
  CHECK(
      CHECK_THROWS(Error, kernels::dequantize(ConstBytes(blocks).first(33), DType::kQ8_0, DType::kF32, 0, {})).code() ==
      ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, kernels::quantize(bytes_of_numbers(numbers), DType::kQ8_0, blocks)).code() ==
        ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, kernels::quantize({}, DType::kQ4_K, {})).code() == ErrorCode::kUnsupported);
}

TEST(codes_of_a_ramp) {
  std::vector<float> numbers(32);
  for (std::size_t i = 0; i < 32; ++i) numbers[i] = static_cast<float>(i) - 16.0f;
  std::vector<std::byte> block(34);
  kernels::quantize(bytes_of_numbers(numbers), DType::kQ8_0, block);
  CHECK_EQ(static_cast<int>(static_cast<std::int8_t>(block[2])), -127);
  CHECK_EQ(static_cast<int>(static_cast<std::int8_t>(block[2 + 16])), 0);
  std::vector<std::byte> small(18);
  kernels::quantize(bytes_of_numbers(numbers), DType::kQ4_0, small);
  // -16 is the largest magnitude, so that its code is 0 and the scale is 2.
  CHECK_EQ(std::to_integer<int>(small[2] & std::byte{15}), 0);
  CHECK_EQ(std::to_integer<int>(small[1]), 0x40);
}

RUN_TESTS()
