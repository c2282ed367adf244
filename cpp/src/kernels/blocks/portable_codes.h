// Takes codes apart, a byte at a time. vector_codes.h has the same functions for AVX2; block_types.h is included after
// one of the two.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/half.h"

#define WEIGHTSTORE_KERNEL

namespace weightstore::kernels {
namespace {

using CodeTable = std::array<std::int8_t, 16>;

inline float half_to_float(std::uint16_t bits) { return std::bit_cast<float>(widen_f16(bits)); }

// out[i] = in[i] >> shift & mask.
template <int kCount>
inline void take_bits(const std::uint8_t* in, int shift, int mask, std::int8_t* out) {
  for (int i = 0; i < kCount; ++i) out[i] = static_cast<std::int8_t>((in[i] >> shift) & mask);
}

// Of 16 bytes, kGroup at a time: the low halves, then the high halves.
template <int kGroup>
inline void take_nibbles(const std::uint8_t* in, std::int8_t* out) {
  for (int i = 0; i < 16; i += kGroup) {
    take_bits<kGroup>(in + i, 0, 15, out + 2 * i);
    take_bits<kGroup>(in + i, 4, 15, out + 2 * i + kGroup);
  }
}

template <int kCount>
inline void add_to_codes(std::int8_t* codes, int number) {
  for (int i = 0; i < kCount; ++i) codes[i] = static_cast<std::int8_t>(codes[i] + number);
}

// codes[i] gets bit i of a word of 32 bits as bit 4.
inline void add_fifth_bits(const std::uint8_t* word, std::int8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<std::int8_t>(codes[i] | ((word[i / 8] >> (i % 8) & 1) << 4));
}

// codes[i] |= (in[i] >> shift & mask) << to, for 32 codes.
inline void add_high_bits(const std::uint8_t* in, int shift, int mask, int to, std::int8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<std::int8_t>(codes[i] | (in[i] >> shift & mask) << to);
}

template <int kCount>
inline void look_up(const CodeTable& table, std::int8_t* codes) {
  for (int i = 0; i < kCount; ++i) codes[i] = table[static_cast<std::size_t>(codes[i])];
}

// Digits of base 3, less 1. A byte is a fraction of 256: three times the byte has the first digit above its eight bits,
// and what is left there is the byte for the other digits. All first digits come first.
template <int kCount, int kDigits>
inline void take_digits(const std::uint8_t* in, std::int8_t* codes) {
  int power = 1;
  for (int digit = 0; digit < kDigits; ++digit, power *= 3) {
    for (int i = 0; i < kCount; ++i) {
      codes[kCount * digit + i] = static_cast<std::int8_t>(((in[i] * power & 0xFF) * 3 >> 8) - 1);
    }
  }
}

}  // namespace
}  // namespace weightstore::kernels
