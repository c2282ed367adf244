#include "codec/inflate.h"

#include <string>

#include "check.h"
#include "codec/crc32.h"
#include "hex.h"
#include "test_files.h"
#include "weightstore/error.h"

using namespace weightstore;
using namespace std::string_literals;

namespace {

// zlib.compressobj(level, DEFLATED, -15) made these streams.
std::string inflated(std::string_view digits, std::size_t size) {
  std::string out(size, '\0');
  inflate(bytes_of(unhex(digits)), std::as_writable_bytes(std::span(out)));
  return out;
}

ErrorCode refusal(std::string_view digits, std::size_t size) {
  return CHECK_THROWS(Error, inflated(digits, size)).code();
}

}  // namespace

TEST(golden_streams) {
  CHECK_EQ(inflated("0300", 0), "");
  CHECK_EQ(inflated("4b0400", 1), "a");              // fixed codes
  CHECK_EQ(inflated("010300fcff616263", 3), "abc");  // stored
  CHECK_EQ(inflated("cb48cdc9c95728cf2fca4901 00", 11), "hello world");
  CHECK_EQ(inflated("4b4c1c05c40200", 300), std::string(300, 'a'));
  // Codes of its own.
  CHECK_EQ(inflated("158ec90d004008026b9543e8bf82754d4c7c0c2384d1364227995ad8b989326ab5523d018d8dec1ea384bb2898ed741c"
                    "522365f7b3bc6857e966e70091f0009f94c1bda579ae6d71e92f86ffc30b0faf4cefda8c4f6bc066ccb93ebc5e0b1d80"
                    "b8b3f150cb133c",
                    200),
           "cbebhhhgdbhaggahedbfaaaagdgadhhdfddheagbcebfgdeehgahdggcffbhbcgfhahaegccdaddgffheagcdgahfdghfgfafhadccbeabb"
           "ahaedebcfebcceceehfhhbaegfgdebedgadagcachgdhdagfgaecdaebbeecgecaadhcagdfbdgdhbgehafgeacdfcfgd");
}

TEST(blocks_follow_one_another) {
  CHECK_EQ(inflated("000300fcff616263 010300fcff646566", 6), "abcdef");
  CHECK_EQ(inflated("000000ffff 000300fcff616263 0300", 3), "abc");
}

TEST(streams_that_are_none) {
  CHECK(refusal("", 0) == ErrorCode::kCorrupt);
  CHECK(refusal("07", 1) == ErrorCode::kCorrupt);                // block kind 3
  CHECK(refusal("010300fcfe616263", 3) == ErrorCode::kCorrupt);  // complement
  CHECK(refusal("010300fcff6162", 3) == ErrorCode::kCorrupt);    // cut
  CHECK(refusal("4b0400", 2) == ErrorCode::kCorrupt);            // shorter than said
  CHECK(refusal("4b4c1c05c40200", 299) == ErrorCode::kCorrupt);  // longer than said
  CHECK(refusal("4b040000", 1) == ErrorCode::kCorrupt);          // bytes behind
  CHECK(refusal("0302", 3) == ErrorCode::kCorrupt);              // copies from before the beginning
  CHECK(refusal("05c0810800000000", 1) == ErrorCode::kCorrupt);  // a code that claims too much
}

// As zlib has it: a code of one symbol takes one bit.
TEST(codes_of_one_symbol) {
  CHECK_EQ(inflated("05c0810800000000207feb03", 0), "");
  CHECK(refusal("0580810800000080fcad0f", 0) == ErrorCode::kCorrupt);
}

TEST(every_cut_of_a_stream_is_refused) {
  const std::string whole = "cb48cdc9c95728cf2fca490100";
  for (std::size_t n = 0; n < whole.size(); n += 2) CHECK_THROWS(Error, inflated(whole.substr(0, n), 11));
}

TEST(crc32_of_known_texts) {
  CHECK_EQ(crc32(bytes_of("")), 0u);
  CHECK_EQ(crc32(bytes_of("123456789")), 0xCBF43926u);
  CHECK_EQ(crc32(bytes_of("The quick brown fox jumps over the lazy dog")), 0x414FA339u);
  const std::string text = test_files::pattern(1000);
  const std::string_view view = text;
  for (const std::size_t cut : {0, 1, 7, 8, 9, 500, 1000}) {
    CHECK_EQ(crc32(bytes_of(view.substr(cut)), crc32(bytes_of(view.substr(0, cut)))), crc32(bytes_of(view)));
  }
}

RUN_TESTS()
