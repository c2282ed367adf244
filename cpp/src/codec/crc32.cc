#include "codec/crc32.h"

#include <array>

#include "base/little_endian.h"

namespace weightstore {
namespace {

using Table = std::array<std::array<std::uint32_t, 256>, 8>;

// Row k advances a byte that has k more bytes behind it, so that eight bytes take eight independent lookups.
constexpr Table make_table() {
  Table table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    table[0][i] = crc;
  }
  for (std::size_t k = 1; k < table.size(); ++k) {
    for (std::size_t i = 0; i < 256; ++i) table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 0xFF];
  }
  return table;
}

constexpr Table kTable = make_table();

}  // namespace

std::uint32_t crc32(ConstBytes bytes, std::uint32_t crc) {
  crc = ~crc;
  const std::byte* p = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; p += 8, left -= 8) {
    const std::uint32_t low = load_little_endian<std::uint32_t>(p) ^ crc;
    const std::uint32_t high = load_little_endian<std::uint32_t>(p + 4);
    crc = kTable[7][low & 0xFF] ^ kTable[6][low >> 8 & 0xFF] ^ kTable[5][low >> 16 & 0xFF] ^ kTable[4][low >> 24] ^
          kTable[3][high & 0xFF] ^ kTable[2][high >> 8 & 0xFF] ^ kTable[1][high >> 16 & 0xFF] ^ kTable[0][high >> 24];
  }
  for (; left > 0; ++p, --left) crc = crc >> 8 ^ kTable[0][(crc ^ std::to_integer<std::uint32_t>(*p)) & 0xFF];
  return ~crc;
}

}  // namespace weightstore
