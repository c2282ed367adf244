#include "codec/inflate.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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

std::string repeated(std::string_view text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) all += text;
  return all;
}

// 200 letters a thousand times: codes of its own, and copies from before what a stream keeps in one piece.
const std::string kRepeated =
    std::string(
        "edcfc90d04210c04c058f1819d7f04cb24b1af4242e2d16e5c191dbb3b157b66ce76c53def4ccda9ddba55db67223bee"
        "54f7be4ccde4bdb19173f7ece9c9ac5335f77ed97ca37b6bf6ce3d2f5099d127e24b5647de77b3f375dddd78d35f71f4"
        "f7e11b3ef996d9f7ba73fad57644774ee779fbe4dbeb46bd404cefb9d327ebe62b48") +
    repeated("0e", 773) + "8e3f3a7e";
constexpr std::size_t kRepeatedSize = 200'000;

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

TEST(a_stream_gives_the_same_in_pieces) {
  const std::string expected = inflated(kRepeated, kRepeatedSize);
  const std::string compressed = unhex(kRepeated);
  const auto source = memory_source(bytes_of(compressed));
  for (const std::size_t piece :
       {std::size_t{1}, std::size_t{7}, std::size_t{4096}, std::size_t{70'000}, kRepeatedSize}) {
    InflateStream stream({*source, 0, compressed.size()});
    std::string out(kRepeatedSize, '\0');
    for (std::size_t at = 0; at < out.size(); at += piece) {
      CHECK_EQ(stream.position(), at);
      stream.read(std::as_writable_bytes(std::span(out)).subspan(at, std::min(piece, out.size() - at)));
    }
    stream.expect_end();
    CHECK(out == expected);
  }
}

TEST(a_stream_goes_back_to_a_bookmark) {
  const std::string expected = inflated(kRepeated, kRepeatedSize);
  const std::string compressed = unhex(kRepeated);
  const auto source = memory_source(bytes_of(compressed));
  InflateStream stream({*source, 0, compressed.size()});
  std::vector<std::pair<std::size_t, std::shared_ptr<const InflateStream::Bookmark>>> bookmarks;
  for (const std::size_t step : {0u, 1u, 100u, 32'768u, 5u, 65'536u, 90'000u}) {
    stream.skip(step);
    bookmarks.emplace_back(stream.position(), stream.bookmark());
  }
  for (std::size_t i = bookmarks.size(); i-- > 0;) {
    stream.go_to(*bookmarks[i].second);
    std::string out(std::min<std::size_t>(50'000, kRepeatedSize - bookmarks[i].first), '\0');
    stream.read(std::as_writable_bytes(std::span(out)));
    CHECK(out == std::string_view(expected).substr(bookmarks[i].first, out.size()));
  }
}

TEST(a_stream_knows_where_its_data_ends) {
  const std::string compressed = unhex(kRepeated);
  const auto source = memory_source(bytes_of(compressed));
  InflateStream longer({*source, 0, compressed.size()});
  longer.skip(kRepeatedSize - 1);
  CHECK(CHECK_THROWS(Error, longer.expect_end()).code() == ErrorCode::kCorrupt);
  InflateStream shorter({*source, 0, compressed.size()});
  CHECK(CHECK_THROWS(Error, shorter.skip(kRepeatedSize + 1)).code() == ErrorCode::kCorrupt);
  const std::string more = compressed + "x";
  const auto with_more = memory_source(bytes_of(more));
  InflateStream behind({*with_more, 0, more.size()});
  behind.skip(kRepeatedSize);
  CHECK(CHECK_THROWS(Error, behind.expect_end()).code() == ErrorCode::kCorrupt);
}

TEST(a_prefix_is_what_a_stream_begins_with) {
  const std::string expected = inflated(kRepeated, kRepeatedSize);
  const std::string compressed = unhex(kRepeated);
  const auto source = memory_source(bytes_of(compressed));
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{300}, std::size_t{50'000}, kRepeatedSize}) {
    std::string out(size, '\0');
    inflate_prefix({*source, 0, compressed.size()}, std::as_writable_bytes(std::span(out)));
    CHECK(out == std::string_view(expected).substr(0, size));
  }
  std::string longer(kRepeatedSize + 1, '\0');
  CHECK_THROWS(Error, inflate_prefix({*source, 0, compressed.size()}, std::as_writable_bytes(std::span(longer))));
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
