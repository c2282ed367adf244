#include "base/crc32c_parts.h"

#include "base/crc32c_polynomial.h"
#include "weightstore/checksum.h"

namespace weightstore {

// crc32c() begins with all ones, and inverts the remainder in the end.
std::uint32_t extend_remainder(std::uint32_t remainder, ConstBytes bytes) { return ~crc32c(bytes, ~remainder); }

std::uint32_t extend_remainder(std::uint32_t remainder, std::uint64_t count) {
  return count == 0 ? remainder : io::multiply(remainder, io::shift_by(count));
}

ZeroBytes::ZeroBytes(std::uint64_t count) : count_(count) {
  const std::uint32_t factor = io::shift_by(count);
  for (std::size_t k = 0; k < table_.size(); ++k) {
    for (std::uint32_t b = 0; b < 256; ++b) table_[k][b] = io::multiply(b << (8 * k), factor);
  }
}

std::uint32_t crc32c_of_remainder(std::uint32_t remainder, std::uint64_t size) {
  return ~(remainder ^ extend_remainder(~std::uint32_t{0}, size));
}

}  // namespace weightstore
