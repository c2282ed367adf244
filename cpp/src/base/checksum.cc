#include "weightstore/checksum.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/crc32c.h"
#include "base/crc32c_polynomial.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace weightstore::io {
namespace {

using ByteTable = std::array<std::uint32_t, 256>;

// table[k][b]: the remainder of byte b followed by k zero bytes.
constexpr std::array<ByteTable, 8> make_slices() {
  std::array<ByteTable, 8> table{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = times_x(crc);
    table[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 0xff];
    }
  }
  return table;
}
constexpr std::array<ByteTable, 8> kSlices = make_slices();

}  // namespace

std::uint32_t crc32c_by_table(ConstBytes bytes, std::uint32_t crc) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  crc = ~crc;
  if constexpr (std::endian::native == std::endian::little) {
    for (; left >= 8; left -= 8, at += 8) {
      std::uint64_t word;
      std::memcpy(&word, at, 8);
      word ^= crc;
      crc = 0;
      for (std::size_t k = 0; k < 8; ++k) crc ^= kSlices[7 - k][(word >> (8 * k)) & 0xff];
    }
  }
  for (; left > 0; --left, ++at) crc = (crc >> 8) ^ kSlices[0][(crc ^ std::to_integer<std::uint32_t>(*at)) & 0xff];
  return ~crc;
}

#if defined(__x86_64__)

namespace {

// A remainder times x^(8 * bytes), a byte of it at a time.
template <std::size_t kBytes>
struct Shift {
  static constexpr std::array<ByteTable, 4> make() {
    std::array<ByteTable, 4> table{};
    const std::uint32_t factor = shift_by(kBytes);
    for (std::size_t k = 0; k < 4; ++k) {
      for (std::uint32_t b = 0; b < 256; ++b) table[k][b] = multiply(b << (8 * k), factor);
    }
    return table;
  }
  static constexpr std::array<ByteTable, 4> kTable = make();

  static std::uint64_t apply(std::uint64_t crc) {
    return kTable[0][crc & 0xff] ^ kTable[1][(crc >> 8) & 0xff] ^ kTable[2][(crc >> 16) & 0xff] ^
           kTable[3][(crc >> 24) & 0xff];
  }
};

__attribute__((target("sse4.2"))) inline std::uint64_t step(std::uint64_t crc, const std::byte* at) {
  std::uint64_t word;
  std::memcpy(&word, at, 8);
  return _mm_crc32_u64(crc, word);
}

// The instruction takes three cycles but starts every cycle: three neighbouring lanes are computed at once, each as if
// it began with zero, and joined by shifting the earlier over the later.
template <std::size_t kLane>
__attribute__((target("sse4.2"))) std::uint64_t three_lanes(std::uint64_t crc, const std::byte*& at,
                                                            std::size_t& left) {
  for (; left >= 3 * kLane; left -= 3 * kLane, at += 3 * kLane) {
    std::uint64_t second = 0;
    std::uint64_t third = 0;
    for (std::size_t i = 0; i < kLane; i += 8) {
      crc = step(crc, at + i);
      second = step(second, at + kLane + i);
      third = step(third, at + 2 * kLane + i);
    }
    crc = Shift<kLane>::apply(crc) ^ second;
    crc = Shift<kLane>::apply(crc) ^ third;
  }
  return crc;
}

}  // namespace

bool has_crc32c_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }

__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(ConstBytes bytes, std::uint32_t initial) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t crc = ~initial;
  crc = three_lanes<4096>(crc, at, left);
  crc = three_lanes<256>(crc, at, left);
  for (; left >= 8; left -= 8, at += 8) crc = step(crc, at);
  auto narrow = static_cast<std::uint32_t>(crc);
  for (; left > 0; --left, ++at) narrow = _mm_crc32_u8(narrow, std::to_integer<unsigned char>(*at));
  return ~narrow;
}

#else

bool has_crc32c_instruction() { return false; }
std::uint32_t crc32c_by_instruction(ConstBytes bytes, std::uint32_t crc) { return crc32c_by_table(bytes, crc); }

#endif

}  // namespace weightstore::io

namespace weightstore {

std::uint32_t crc32c(ConstBytes bytes, std::uint32_t crc) {
  return io::has_crc32c_instruction() ? io::crc32c_by_instruction(bytes, crc) : io::crc32c_by_table(bytes, crc);
}

}  // namespace weightstore
