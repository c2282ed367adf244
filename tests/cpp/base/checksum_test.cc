#include "weightstore/checksum.h"

#include <string>
#include <vector>

#include "base/crc32c.h"
#include "check.h"
#include "test_files.h"

using namespace weightstore;
using test_files::as_bytes;
using test_files::pattern;

namespace {

// One bit at a time, straight from the definition.
std::uint32_t crc32c_by_bits(ConstBytes bytes, std::uint32_t crc) {
  crc = ~crc;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<std::uint32_t>(byte);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

}  // namespace

TEST(known_vectors) {
  CHECK_EQ(crc32c({}), 0u);
  CHECK_EQ(crc32c(as_bytes("a")), 0xc1d04330u);
  CHECK_EQ(crc32c(as_bytes("123456789")), 0xe3069283u);
  CHECK_EQ(crc32c(as_bytes(std::string(32, '\0'))), 0x8a9136aau);
  CHECK_EQ(crc32c(as_bytes(std::string(32, '\xff'))), 0x62a8ab43u);
}

TEST(all_ways_agree_at_all_lengths_and_alignments) {
  const std::string text = pattern(2100, 1);
  for (std::size_t begin = 0; begin < 9; ++begin) {
    for (std::size_t length = 0; length < 2000; length += length < 64 ? 1 : 13) {
      const ConstBytes bytes = as_bytes(text).subspan(begin, length);
      const std::uint32_t expected = crc32c_by_bits(bytes, 7);
      CHECK_EQ(io::crc32c_by_table(bytes, 7), expected);
      if (io::has_crc32c_instruction()) CHECK_EQ(io::crc32c_by_instruction(bytes, 7), expected);
    }
  }
}

TEST(long_inputs_agree) {
  const std::string text = pattern(3 * 3 * 4096 + 3 * 256 + 21, 2);
  for (const std::size_t length : {3 * 256 - 1, 3 * 256, 3 * 4096 - 1, 3 * 4096, 3 * 4096 + 1, 6 * 4096 + 777}) {
    const ConstBytes bytes = as_bytes(text).first(length);
    CHECK_EQ(crc32c(bytes), io::crc32c_by_table(bytes, 0));
  }
  CHECK_EQ(crc32c(as_bytes(text)), crc32c_by_bits(as_bytes(text), 0));
}

TEST(extending_equals_the_whole) {
  const std::string text = pattern(20000, 3);
  const std::uint32_t whole = crc32c(as_bytes(text));
  for (const std::size_t cut : {0, 1, 7, 8, 767, 768, 12288, 12289, 19999, 20000}) {
    CHECK_EQ(crc32c(as_bytes(text).subspan(cut), crc32c(as_bytes(text).first(cut))), whole);
  }
}

TEST(every_single_bit_counts) {
  std::string text = pattern(100, 4);
  const std::uint32_t before = crc32c(as_bytes(text));
  for (std::size_t bit = 0; bit < 8 * text.size(); ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
    CHECK(crc32c(as_bytes(text)) != before);
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
  }
}

RUN_TESTS()
