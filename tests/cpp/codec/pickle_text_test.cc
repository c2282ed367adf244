#include "codec/pickle_text.h"

#include <string>

#include "check.h"
#include "hex.h"
#include "weightstore/error.h"

using namespace weightstore;
using namespace std::string_literals;

namespace {

std::string rewritten(const std::string& pickle) {
  MemoryBudget memory(pickle.size());
  const ChargedString result = to_protocol_2(bytes_of(pickle), memory);
  return {result.begin(), result.end()};
}

Error refusal(const std::string& pickle) { return CHECK_THROWS(Error, rewritten(pickle)); }

}  // namespace

TEST(every_instruction_becomes_one_of_protocol_2) {
  CHECK_EQ(rewritten("(dp0\n."), "\x80\2}r\0\0\0\0."s);
  CHECK_EQ(rewritten("(lp70000\ng70000\na."), "\x80\2]r\x70\x11\1\0j\x70\x11\1\0a."s);
  CHECK_EQ(rewritten("(I01\nI00\nNt."), "\x80\2(\x88\x89Nt."s);
  CHECK_EQ(rewritten("F-1.5\n."), "\x80\2G\xbf\xf8\0\0\0\0\0\0."s);
  CHECK_EQ(rewritten("ca.b\nc\n(tR."), "\x80\2ca.b\nc\n(tR."s);
  CHECK_EQ(rewritten("}q\0X\1\0\0\0aK\1s."s), "\x80\2}q\0X\1\0\0\0aK\1s."s);  // protocol 1
}

TEST(integers_of_any_length) {
  CHECK_EQ(rewritten("I7\n."), "\x80\2K\7."s);
  CHECK_EQ(rewritten("I-2\n."), "\x80\2J\xfe\xff\xff\xff."s);
  CHECK_EQ(rewritten("L4294967296L\n."), "\x80\2\x8a\x8\0\0\0\0\1\0\0\0."s);
  // 2^63, its negative, and 2^64 - 1.
  CHECK_EQ(rewritten("L9223372036854775808L\n."), "\x80\2\x8b\x9\0\0\0\0\0\0\0\0\0\0\x80\0."s);
  CHECK_EQ(rewritten("L-9223372036854775808L\n."), "\x80\2\x8b\x8\0\0\0\0\0\0\0\0\0\0\x80."s);
  CHECK_EQ(rewritten("I18446744073709551615\n."), "\x80\2\x8b\x9\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0."s);
  CHECK_EQ(rewritten("L000000000000000000000L\n."), "\x80\2\x8b\1\0\0\0\0."s);
}

TEST(escaped_text) {
  CHECK_EQ(rewritten("Vab\n."), "\x80\2X\2\0\0\0ab."s);
  CHECK_EQ(rewritten("V\n."), "\x80\2X\0\0\0\0."s);
  CHECK_EQ(rewritten("V\xf6\\u000a\\U0001f600\n."), "\x80\2X\7\0\0\0\xc3\xb6\n\xf0\x9f\x98\x80."s);
  // Two backslashes escape nothing, and neither does one before another letter or at the end.
  CHECK_EQ(rewritten("V\\\\u0041\\x\\\n."), "\x80\2X\xa\0\0\0\\\\u0041\\x\\."s);
}

TEST(what_is_wrong_is_refused_with_its_place) {
  for (const std::string pickle : {"", "(dp0\n", "(dp0", "I5", "Ix\n.", "I\n.", "I5L\n.", "I+5\n.", "L-L\n.",
                                   "L1234567890123456789x\n.", "F1,5\n.", "g-1\n.", "p99999999999\n.", "V\\u00\n.",
                                   "V\\ud800\n.", "V\\U00110000\n.", "V\\uzzzz\n.", "\x80\2."}) {
    CHECK(refusal(pickle).code() == ErrorCode::kCorrupt);
  }
  for (const std::string pickle : {"S'a'\n.", "Pid\n.", "(ia\nb\n.", "N0.", "N2.", "(NNd.", "(Nl.", "d.", "\x82\1."}) {
    CHECK(refusal(pickle).code() == ErrorCode::kUnsupported);
  }
  CHECK(refusal("L" + std::string(4301, '1') + "L\n.").code() == ErrorCode::kLimit);
  CHECK_EQ(refusal("(dp0\nIx\n.").offset(), 5u);
  CHECK_EQ(refusal("(dp0\n..").offset(), 6u);
  CHECK_EQ(refusal("NNS'a'\n.").offset(), 2u);
}

TEST(memory_follows_the_pickle) {
  std::string pickle = "(";
  for (int i = 0; i < 100'000; ++i) pickle += "F1\n";
  CHECK(rewritten(pickle + "t.").size() < 3 * pickle.size() + 8);
}

RUN_TESTS()
