#pragma once

// Arithmetic with the remainders of crc32c. A remainder is bit-reversed, as the processor's instruction has it: bit 31
// is the coefficient of x^0.

#include <cstdint>

namespace weightstore::io {

inline constexpr std::uint32_t kPolynomial = 0x82f63b78;  // Castagnoli's, bit-reversed

inline constexpr std::uint32_t times_x(std::uint32_t a) { return (a >> 1) ^ ((a & 1) != 0 ? kPolynomial : 0); }

inline constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = times_x(b);
  }
  return product;
}

// x^(8 * bytes): what a remainder is multiplied by when that many zero bytes follow.
inline constexpr std::uint32_t shift_by(std::uint64_t bytes) {
  std::uint32_t result = 0x80000000;
  std::uint32_t power = times_x(0x80000000);
  for (std::uint64_t n = 8 * bytes; n != 0; n >>= 1) {
    if ((n & 1) != 0) result = multiply(result, power);
    power = multiply(power, power);
  }
  return result;
}

}  // namespace weightstore::io
