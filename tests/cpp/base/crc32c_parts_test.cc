#include "base/crc32c_parts.h"

#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "test_files.h"
#include "weightstore/checksum.h"

using namespace weightstore;
using test_files::as_bytes;
using test_files::pattern;

TEST(parts_with_zeros_elsewhere_add_up) {
  const std::string text = pattern(1000, 1);
  // Byte i belongs to part i * i mod 3.
  std::uint32_t sum = 0;
  for (std::size_t part = 0; part < 3; ++part) {
    std::string own(text.size(), '\0');
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (i * i % 3 == part) own[i] = text[i];
    }
    sum ^= extend_remainder(0, as_bytes(own));
  }
  CHECK_EQ(crc32c_of_remainder(sum, text.size()), crc32c(as_bytes(text)));
}

TEST(zeros_are_appended_in_any_way) {
  const std::uint32_t begin = extend_remainder(0, as_bytes(pattern(33, 2)));
  for (const std::uint64_t count : {0u, 1u, 7u, 8u, 255u, 4096u, 100'000u}) {
    const std::uint32_t expected = extend_remainder(begin, as_bytes(std::string(count, '\0')));
    CHECK_EQ(extend_remainder(begin, count), expected);
    CHECK_EQ(ZeroBytes(count).extend(begin), expected);
  }
  CHECK_EQ(extend_remainder(0, std::uint64_t{1} << 60), 0u);
}

TEST(the_checksum_of_nothing_and_of_zeros) {
  CHECK_EQ(crc32c_of_remainder(0, 0), crc32c({}));
  CHECK_EQ(crc32c_of_remainder(0, 32), 0x8a9136aau);
}
