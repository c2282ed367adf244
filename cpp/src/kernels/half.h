#pragma once

// Exact conversions of single numbers, all through the bits of an F32: what the vectorised kernels are checked against,
// and what is used where the processor has no instruction. Without branches: weights are hard to predict.

#include <bit>
#include <cstdint>

namespace weightstore::kernels {

constexpr std::uint32_t widen_f16(std::uint16_t half) {
  constexpr std::uint32_t kRebias = 112u << 23;
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  // Subnormal: a multiple of 2^-24, which F32 holds as a normal number.
  const auto small = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<int>(magnitude)) * 0x1p-24f);
  std::uint32_t bits = (magnitude << 13) + kRebias;
  bits += magnitude >= 0x7c00u ? kRebias : 0;       // infinity, NaN
  bits |= magnitude > 0x7c00u ? 0x0040'0000u : 0u;  // quiet, as the instruction makes it
  return sign | (magnitude < 0x0400u ? small : bits);
}

constexpr std::uint16_t narrow_to_f16(std::uint32_t bits) {
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fff'ffffu;
  // Beside 0.5 an F32 has a unit of 2^-24, as a subnormal F16 has: the addition rounds.
  const std::uint32_t small =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - std::bit_cast<std::uint32_t>(0.5f);
  // The carry of 65520 and beyond makes infinity.
  std::uint32_t half = (magnitude - (112u << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  half = magnitude < 0x3880'0000u ? small : half;     // 2^-14
  half = magnitude >= 0x4780'0000u ? 0x7c00u : half;  // 65536
  half = magnitude > 0x7f80'0000u ? 0x7e00u | ((magnitude >> 13) & 0x03ffu) : half;
  return static_cast<std::uint16_t>(sign | half);
}

constexpr std::uint32_t widen_bf16(std::uint16_t half) { return std::uint32_t{half} << 16; }

constexpr std::uint16_t narrow_to_bf16(std::uint32_t bits) {
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x0040u;
  return static_cast<std::uint16_t>((bits & 0x7fff'ffffu) > 0x7f80'0000u ? quiet : rounded);
}

}  // namespace weightstore::kernels
