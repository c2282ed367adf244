#include "codec/json.h"

#include <limits>
#include <string>

#include "base/utf8.h"
#include "check.h"
#include "weightstore/error.h"

using weightstore::Error;
using weightstore::ErrorCode;
using weightstore::json_decode;
using weightstore::json_encode;
using weightstore::JsonCursor;
using weightstore::Value;

namespace {

std::string repeat(std::string_view text, std::size_t count) {
  std::string result;
  for (std::size_t i = 0; i < count; ++i) result += text;
  return result;
}

std::string nested(std::size_t depth) { return repeat("[", depth) + repeat("]", depth); }

bool decodes(std::string_view text) {
  try {
    json_decode(text);
    return true;
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kCorrupt);
    CHECK(error.offset().has_value());
    CHECK(*error.offset() <= text.size());
    return false;
  }
}

bool skips(std::string_view text) {
  try {
    JsonCursor cursor(text);
    cursor.skip_value();
    cursor.expect_end();
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The decoder and the cursor must agree.
bool valid(std::string_view text) {
  const bool result = decodes(text);
  if (skips(text) != result) check::fail(__FILE__, __LINE__, "decoder and cursor disagree about " + std::string(text));
  return result;
}

std::string string_of(std::string_view text) { return *json_decode(text).get_if<std::string>(); }

}  // namespace

TEST(values_of_every_kind) {
  CHECK(json_decode("null") == Value());
  CHECK(json_decode("true") == Value(true));
  CHECK(json_decode(" \t\r\nfalse\n") == Value(false));
  CHECK(json_decode("\"x\"") == Value("x"));
  CHECK(json_decode("[]") == Value(Value::List{}));
  CHECK(json_decode("{}") == Value(Value::Map{}));
  CHECK(json_decode("{\"a\":[1,{\"b\":null}],\"c\":-2}") ==
        Value(Value::Map{{"a", Value::List{1, Value::Map{{"b", Value()}}}}, {"c", -2}}));
}

TEST(integers_keep_their_value_up_to_64_bits) {
  CHECK(json_decode("0") == Value(0));
  CHECK(json_decode("-0") == Value(0));
  CHECK(json_decode("9223372036854775807") == Value(std::int64_t{INT64_MAX}));
  CHECK(json_decode("-9223372036854775808") == Value(std::int64_t{INT64_MIN}));
  CHECK(json_decode("18446744073709551615") == Value(std::uint64_t{UINT64_MAX}));
  CHECK(json_decode("18446744073709551616") == Value(18446744073709551616.0));
  CHECK(json_decode("-9223372036854775809") == Value(-9223372036854775809.0));
}

TEST(fractions_and_exponents) {
  CHECK(json_decode("1.5") == Value(1.5));
  CHECK(json_decode("-2.25e-3") == Value(-2.25e-3));
  CHECK(json_decode("1E+2") == Value(100.0));
  CHECK(json_decode("1e2") == Value(100.0));
  CHECK(json_decode("1.7976931348623157e308") == Value(1.7976931348623157e308));
}

TEST(numbers_too_large_are_refused_and_too_small_are_zero) {
  for (const char* text :
       {"1e309", "-1e309", "1e999999999999999999999", "1.8e308", "17976931348623159e292", "0.0001e313", "1000e306"}) {
    CHECK(!valid(text));
  }
  CHECK(!valid(repeat("9", 400)));
  CHECK(valid(repeat("9", 308)));
  for (const char* text : {"1e-400", "-1e-400", "1e-999999999999999999999", "0e999999999999999999999", "0.0e400",
                           "0.001e311", "123e-400"}) {
    CHECK(valid(text));
  }
  CHECK(json_decode("1e-400") == Value(0.0));
  CHECK(json_decode("0e400") == Value(0.0));
  CHECK(json_decode("0.001e311") == Value(1e308));
  // A long fraction does not change how large a number is.
  CHECK(valid("0." + repeat("0", 1000) + "1e1300"));
  CHECK(!valid("0." + repeat("0", 1000) + "1e1311"));
}

TEST(malformed_numbers_are_refused) {
  for (const char* text : {"01", "-01", "+1", "-", "1.", ".5", "1.e2", "1e", "1e+", "0x10", "1_0", "NaN", "Infinity",
                           "-Infinity", "1.2.3", "--1", "00", "1e2.5"}) {
    CHECK(!valid(text));
  }
}

TEST(structure_is_strict) {
  for (const char* text : {"",
                           " ",
                           "[",
                           "]",
                           "{",
                           "}",
                           "[1",
                           "[1,",
                           "[1,]",
                           "[,1]",
                           "[,]",
                           "[1 2]",
                           "[1}",
                           "{]",
                           "{\"a\"}",
                           "{\"a\":}",
                           "{\"a\":1,}",
                           "{,}",
                           "{\"a\":1 \"b\":2}",
                           "{\"a\" 1}",
                           "{a:1}",
                           "{'a':1}",
                           "{1:2}",
                           "{null:1}",
                           "[]]",
                           "{}{}",
                           "1 2",
                           "tru",
                           "truex",
                           "True",
                           "nul",
                           "nulll",
                           "// x\n1",
                           "/* x */1",
                           "1 // x",
                           "[1]\v",
                           "\xEF\xBB\xBF{}",
                           "\"a",
                           "\"",
                           "{\"a\":1",
                           "{\"a\"",
                           "{\"",
                           "[[]",
                           "{\"a\":[}",
                           "undefined",
                           "'a'"}) {
    CHECK(!valid(text));
  }
  CHECK(!valid(std::string_view("{}\0", 3)));
  CHECK(!valid(std::string_view("\0{}", 3)));
  CHECK(!valid(std::string_view("[1\0]", 4)));
  CHECK(valid(" [ 1 , [ ] , { } , { \"a\" : 1 , \"b\" : 2 } ] "));
}

TEST(escapes) {
  CHECK_EQ(string_of(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  CHECK_EQ(string_of(R"("\u0041\u00e9\u20AC")"), "A\u00e9\u20ac");
  CHECK_EQ(string_of(R"("\ud83d\ude00")"), "\xF0\x9F\x98\x80");
  CHECK_EQ(string_of(R"("\uDBFF\uDFFF")"), "\xF4\x8F\xBF\xBF");
  CHECK_EQ(string_of(R"("\uffff\ue000\ud7ff")"), "\uffff\ue000\ud7ff");
  CHECK_EQ(string_of(R"("a\u0000b")"), std::string("a\0b", 3));
  CHECK_EQ(string_of("\"\x7f/\""), "\x7f/");
}

TEST(bad_escapes_are_refused) {
  for (const char* text :
       {R"("\x41")", R"("\a")", R"("\'")", R"("\u12")", R"("\u12g4")", R"("\u")", R"("\U0041")", R"("\)", R"("\")",
        R"("\u004)", "\"\\\n\"", "\"\\\xC3\xA9\"", R"("\u 041")", R"("\u+041")"}) {
    CHECK(!valid(text));
  }
}

TEST(lone_surrogates_are_refused) {
  for (const char* text :
       {R"("\ud800")", R"("\udc00")", R"("\ud800x")", R"("\ud800\n")", R"("\ud800\u0041")", R"("\ud800\ud800")",
        R"("\udc00\ud800")", R"("\ud83d\ude0")", R"("\ud83d\u")", R"("\ud83d\\ude00")"}) {
    CHECK(!valid(text));
  }
}

TEST(control_characters_are_refused_at_every_place_of_a_string) {
  // Strings are scanned eight bytes at a time: every phase of a word has its turn.
  for (int c = 0; c < 0x100; ++c) {
    for (std::size_t before = 0; before < 18; ++before) {
      const std::string text =
          "\"" + std::string(before, 'x') + static_cast<char>(c) + std::string(17 - before, 'y') + "\"";
      CHECK_EQ(valid(text), c >= 0x20 && c != '"' && c != '\\' && c < 0x80);
    }
  }
}

TEST(utf8_is_checked_at_every_place_of_a_string) {
  const std::string_view good[] = {"\xC2\x80",     "\xDF\xBF",     "\xE0\xA0\x80",     "\xED\x9F\xBF",
                                   "\xEE\x80\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"};
  const std::string_view bad[] = {"\x80",
                                  "\xBF",
                                  "\xC0\x80",
                                  "\xC1\xBF",
                                  "\xC2",
                                  "\xC2x",
                                  "\xE0\x9F\xBF",
                                  "\xE0\xA0",
                                  "\xED\xA0\x80",
                                  "\xED\xBF\xBF",
                                  "\xF0\x8F\xBF\xBF",
                                  "\xF0\x90\x80",
                                  "\xF4\x90\x80\x80",
                                  "\xF5\x80\x80\x80",
                                  "\xFE",
                                  "\xFF",
                                  "\xE2\x82\\n",
                                  "\xC3\\u00a9"};
  for (std::size_t before = 0; before < 10; ++before) {
    for (const std::string_view text : good) {
      CHECK(valid("\"" + std::string(before, 'x') + std::string(text) + "\""));
    }
    for (const std::string_view text : bad) {
      const std::string json = "\"" + std::string(before, 'x') + std::string(text) + "\"";
      CHECK(!valid(json));
      CHECK_EQ(*CHECK_THROWS(Error, json_decode(json)).offset(), 1 + before);
    }
  }
  CHECK(weightstore::is_utf8("") && weightstore::is_utf8("plain ASCII text"));
  CHECK_EQ(weightstore::valid_utf8_prefix("abcdefgh\xC3"), std::size_t{8});
}

TEST(depth_is_capped) {
  CHECK(valid(nested(127)));
  CHECK(!valid(nested(128)));
  CHECK(!valid(nested(100'000)));
  CHECK(valid(repeat("{\"a\":", 127) + "1" + repeat("}", 127)));
  CHECK(!valid(repeat("{\"a\":", 128) + "1" + repeat("}", 128)));
  // Depth is what is open, not what was.
  CHECK(valid("[" + repeat("[],", 1000) + "[]]"));
  CHECK_EQ(*CHECK_THROWS(Error, json_decode(nested(128))).offset(), 127u);
}

TEST(duplicate_keys_are_refused_by_the_decoder_and_passed_by_the_cursor) {
  CHECK(!decodes("{\"a\":1,\"a\":2}"));
  CHECK(!decodes("{\"a\":1,\"\\u0061\":2}"));
  CHECK(!decodes("[{\"\":1,\"\":2}]"));
  CHECK(decodes("{\"a\":{\"a\":1}}"));
  CHECK(skips("{\"a\":1,\"a\":2}"));
}

TEST(read_uint_takes_plain_integers_only) {
  const auto read = [](std::string_view text) { return JsonCursor(text).read_uint(); };
  CHECK_EQ(read("0"), 0u);
  CHECK_EQ(read(" 18446744073709551615"), UINT64_MAX);
  for (const char* text : {"18446744073709551616", "184467440737095516150", "-1", "-0", "1.0", "1e0", "1E0", "01", "00",
                           "\"1\"", "", "null", "+1", "[1]"}) {
    CHECK_THROWS(Error, read(text));
  }
}

TEST(the_cursor_walks_without_a_tree) {
  const std::string text = R"( {"k\n":[1, 22 ,333], "plain" : "v\t" , "skip":{"a":[{}]} , "n":null} )";
  JsonCursor cursor(text);
  std::string key_scratch;
  std::string scratch;
  std::string_view key;
  cursor.begin_object();
  CHECK(cursor.next_key(key, key_scratch));
  CHECK_EQ(key, "k\n");
  CHECK_EQ(cursor.peek(), '[');
  cursor.begin_array();
  std::uint64_t sum = 0;
  while (cursor.next_element()) sum += cursor.read_uint();
  CHECK_EQ(sum, 356u);
  CHECK(cursor.next_key(key, key_scratch));
  // A key without escapes points into the text.
  CHECK(key.data() > text.data() && key.data() < text.data() + text.size());
  CHECK_EQ(cursor.read_string(scratch), "v\t");
  CHECK(cursor.next_key(key, key_scratch));
  CHECK_EQ(cursor.skip_value(), R"({"a":[{}]})");
  CHECK(cursor.next_key(key, key_scratch));
  CHECK(cursor.consume_null());
  CHECK(!cursor.next_key(key, key_scratch));
  cursor.expect_end();
  CHECK_EQ(cursor.peek(), '\0');
}

TEST(errors_tell_where) {
  CHECK_EQ(*CHECK_THROWS(Error, json_decode("[1,x]")).offset(), 3u);
  CHECK_EQ(*CHECK_THROWS(Error, json_decode("[1,2")).offset(), 4u);
  CHECK_EQ(*CHECK_THROWS(Error, json_decode("[\"\\ud800\"]")).offset(), 2u);
  CHECK_EQ(*CHECK_THROWS(Error, json_decode("[10, 01]")).offset(), 5u);
  CHECK_EQ(*CHECK_THROWS(Error, json_decode("{} x")).offset(), 3u);
}

TEST(messages_show_paths_safely) {
  using weightstore::escape_controls;
  CHECK_EQ(escape_controls("\u00a0 \u00c2 \u0100"), "\u00a0 \u00c2 \u0100");
  CHECK_EQ(escape_controls("\u0080 \u009b31m \u009f"), "\\xc2\\x80 \\xc2\\x9b31m \\xc2\\x9f");
  const Error error =
      Error(ErrorCode::kIo, "cannot look in 'd\n/e\x1b[0m'").in_file("d\n/" + repeat("x", 300) + "\x1b[31m");
  CHECK_EQ(std::string(error.what()), "d\\x0a/" + repeat("x", 300) + "\\x1b[31m: cannot look in 'd\\x0a/e\\x1b[0m'");
  CHECK_EQ(error.message(), "cannot look in 'd\\x0a/e\\x1b[0m'");
  CHECK_EQ(error.path(), "d\n/" + repeat("x", 300) + "\x1b[31m");
}

TEST(messages_show_text_from_outside_safely) {
  using weightstore::printable;
  CHECK_EQ(printable("a \u00e9"), "a \u00e9");
  CHECK_EQ(printable(std::string("\0\x1b[2J\x7f\n", 7)), "\\x00\\x1b[2J\\x7f\\x0a");
  CHECK_EQ(printable(repeat("x", 256)), repeat("x", 256));
  CHECK_EQ(printable(repeat("x", 257)), repeat("x", 256) + "... (257 bytes)");
  // Never half a character.
  for (std::size_t before = 250; before < 258; ++before) {
    const std::string text = repeat("x", before) + "\xF0\x9F\x98\x80" + repeat("y", 10);
    CHECK(weightstore::is_utf8(printable(text)));
  }
  const Error error = Error(ErrorCode::kCorrupt, "m").in_tensor(std::string("a\0b", 3));
  CHECK_EQ(std::string(error.what()), "tensor 'a\\x00b': m");
  CHECK_EQ(error.tensor(), std::string("a\0b", 3));
}

TEST(encoding_is_compact_and_escapes_as_the_reference) {
  CHECK_EQ(json_encode(Value::Map{{"a", Value::List{1, true, Value(), -5, 0.5}}, {"b", Value::Map{}}}),
           R"({"a":[1,true,null,-5,0.5],"b":{}})");
  CHECK_EQ(json_encode(std::string("\"\\\b\f\n\r\t\0\x1f\x7f/", 11)), R"("\"\\\b\f\n\r\t\u0000\u001f)"
                                                                      "\x7f/\"");
  CHECK_EQ(json_encode("\u00e9\u20ac\xF0\x9F\x98\x80"), "\"\u00e9\u20ac\xF0\x9F\x98\x80\"");
  CHECK_EQ(json_encode(std::uint64_t{UINT64_MAX}), "18446744073709551615");
  CHECK_EQ(json_encode(3.0), "3.0");
  CHECK_EQ(json_encode(-0.0), "-0.0");
  CHECK_EQ(json_encode(1e300), "1e+300");
}

TEST(what_json_cannot_say_is_refused) {
  const auto refused = [](const Value& value) {
    return CHECK_THROWS(Error, json_encode(value)).code() == ErrorCode::kInvalidArgument;
  };
  CHECK(refused(std::numeric_limits<double>::quiet_NaN()));
  CHECK(refused(-std::numeric_limits<double>::infinity()));
  CHECK(refused(Value::Bytes{std::byte{1}}));
  CHECK(refused(Value::Map{{1, 2}}));
  CHECK(refused(std::string("\xFF")));
}

TEST(encoding_decodes_to_itself) {
  const Value value = Value::List{0,
                                  -1,
                                  std::uint64_t{UINT64_MAX},
                                  1.0,
                                  -0.0,
                                  5e-324,
                                  1.7976931348623157e308,
                                  0.1,
                                  "",
                                  std::string("\0\x01\"", 3),
                                  Value::Map{{"", Value::List{}}, {"k", Value()}}};
  CHECK(json_decode(json_encode(value)) == value);
}

RUN_TESTS()
