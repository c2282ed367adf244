#pragma once

// The crc32c of bytes of which several processes have a part each.
//
// crc32c is linear up to a constant. So the checksum of a tensor is the sum (XOR) of one number a process: the
// remainder of the bytes that this process has, with zeros in place of all others. The constant depends only on the
// size.

#include <array>
#include <cstdint>

#include "weightstore/byte_source.h"

namespace weightstore {

// Continues a remainder with bytes. The remainder of nothing, and of any number of zeros, is 0.
std::uint32_t extend_remainder(std::uint32_t remainder, ConstBytes bytes);

// Continues a remainder with `count` zero bytes. Takes a few microseconds, whatever `count` is.
std::uint32_t extend_remainder(std::uint32_t remainder, std::uint64_t count);

// The same for a `count` that is used often. Making it takes some 30 microseconds, applying it some nanoseconds.
class ZeroBytes {
 public:
  explicit ZeroBytes(std::uint64_t count);

  std::uint64_t count() const { return count_; }
  std::uint32_t extend(std::uint32_t remainder) const {
    return table_[0][remainder & 0xff] ^ table_[1][(remainder >> 8) & 0xff] ^ table_[2][(remainder >> 16) & 0xff] ^
           table_[3][remainder >> 24];
  }

 private:
  std::uint64_t count_;
  std::array<std::array<std::uint32_t, 256>, 4> table_;
};

// The crc32c of `size` bytes whose remainder, that is the XOR of the remainders of all parts, is `remainder`.
std::uint32_t crc32c_of_remainder(std::uint32_t remainder, std::uint64_t size);

}  // namespace weightstore
