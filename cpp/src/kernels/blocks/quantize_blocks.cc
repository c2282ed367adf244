#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "kernels/half.h"
#include "weightstore/error.h"
#include "weightstore/kernels.h"

// Every step rounds to F32, as arrays of numpy do. So the order of the operations matters.

namespace weightstore {
namespace {

constexpr int kNumbers = 32;  // of a block

float reciprocal(float scale) { return scale == 0.0f ? 0.0f : 1.0f / scale; }

void put_scale(float scale, std::byte* out) {
  const std::uint16_t bits = kernels::narrow_to_f16(std::bit_cast<std::uint32_t>(scale));
  if ((bits & 0x7FFF) >= 0x7C00) {
    throw Error(ErrorCode::kInvalidArgument, std::isfinite(scale)
                                                 ? "its numbers are too large: the scale of a block is " +
                                                       std::to_string(scale) + ", which F16 cannot represent"
                                                 : "a number is not finite, so that it cannot be quantized");
  }
  out[0] = static_cast<std::byte>(bits & 0xFF);
  out[1] = static_cast<std::byte>(bits >> 8);
}

// A block whose scale is so small that its reciprocal is infinite has no codes that mean anything; its scale is 0 as
// F16. Its codes are 0, as numpy makes them.
int code_of(float number) { return std::isfinite(number) ? static_cast<int>(number) : 0; }

// Half of a unit is rounded away from zero. The magnitude is at most 127 and a little more.
int rounded(float number) {
  const float magnitude = std::fabs(number);
  if (!std::isfinite(magnitude)) return 0;
  const auto whole = static_cast<float>(static_cast<int>(magnitude));
  const int result = static_cast<int>(whole) + static_cast<int>(2.0f * (magnitude - whole));
  return number < 0.0f ? -result : result;
}

void quantize_q8_0(const float* numbers, std::byte* out) {
  float largest = 0.0f;
  bool is_finite = true;
  for (int i = 0; i < kNumbers; ++i) {
    largest = std::max(largest, std::fabs(numbers[i]));
    is_finite &= std::isfinite(numbers[i]);
  }
  const float scale = is_finite ? largest / 127.0f : INFINITY;
  put_scale(scale, out);
  const float inverse = reciprocal(scale);
  for (int i = 0; i < kNumbers; ++i) out[2 + i] = static_cast<std::byte>(rounded(numbers[i] * inverse));
}

void quantize_q4_0(const float* numbers, std::byte* out) {
  float largest = numbers[0];
  bool is_finite = true;
  for (int i = 0; i < kNumbers; ++i) {
    if (std::fabs(numbers[i]) > std::fabs(largest)) largest = numbers[i];
    is_finite &= std::isfinite(numbers[i]);
  }
  const float scale = is_finite ? largest / -8.0f : INFINITY;
  put_scale(scale, out);
  const float inverse = reciprocal(scale);
  int codes[kNumbers];
  for (int i = 0; i < kNumbers; ++i) codes[i] = std::clamp(code_of(numbers[i] * inverse + 8.5f), 0, 15);
  for (int i = 0; i < kNumbers / 2; ++i) out[2 + i] = static_cast<std::byte>(codes[i] | codes[i + kNumbers / 2] << 4);
}

using QuantizeBlock = void (*)(const float* numbers, std::byte* out);

QuantizeBlock quantizer(DType dtype) {
  if (dtype == DType::kQ8_0) return quantize_q8_0;
  if (dtype == DType::kQ4_0) return quantize_q4_0;
  return nullptr;
}

}  // namespace

bool can_quantize(DType dtype) { return quantizer(dtype) != nullptr; }

void kernels::quantize(ConstBytes in, DType to, MutableBytes out) {
  const QuantizeBlock quantize_block = quantizer(to);
  if (quantize_block == nullptr) {
    throw Error(ErrorCode::kUnsupported, "numbers are quantized to Q8_0 or Q4_0, not " + std::string(name_of(to)));
  }
  constexpr std::size_t kBytes = kNumbers * sizeof(float);
  const std::size_t block_bytes = block_of(to)->bytes;
  if (in.size() % kBytes != 0 || out.size() != in.size() / kBytes * block_bytes) {
    throw Error(ErrorCode::kInvalidArgument, std::to_string(in.size()) + " bytes of F32 do not make " +
                                                 std::to_string(out.size()) + " bytes of " + std::string(name_of(to)));
  }
  for (std::size_t block = 0; block < in.size() / kBytes; ++block) {
    float numbers[kNumbers];
    std::memcpy(numbers, in.data() + block * kBytes, kBytes);
    quantize_block(numbers, out.data() + block * block_bytes);
  }
}

}  // namespace weightstore
