#include "codec/cbor.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "check.h"
#include "hex.h"
#include "weightstore/error.h"

using namespace weightstore;

namespace {

Value decode(std::string_view digits) {
  const std::string bytes = unhex(digits);
  return cbor_decode(bytes_of(bytes));
}

ErrorCode refusal(std::string_view digits) { return CHECK_THROWS(Error, decode(digits)).code(); }

std::string encode(const Value& value) { return hex(cbor_encode(value)); }

std::string repeated(std::string_view text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

}  // namespace

TEST(integers_in_their_shortest_form) {
  const std::pair<Value, const char*> cases[] = {
      {0, "00"},
      {23, "17"},
      {24, "1818"},
      {255, "18ff"},
      {256, "190100"},
      {65535, "19ffff"},
      {65536, "1a00010000"},
      {std::int64_t{4294967295}, "1affffffff"},
      {std::int64_t{4294967296}, "1b0000000100000000"},
      {std::uint64_t{UINT64_MAX}, "1bffffffffffffffff"},
      {-1, "20"},
      {-24, "37"},
      {-25, "3818"},
      {-256, "38ff"},
      {-257, "390100"},
      {std::int64_t{INT64_MIN}, "3b7fffffffffffffff"},
  };
  for (const auto& [value, digits] : cases) {
    CHECK_EQ(encode(value), digits);
    CHECK(decode(digits) == value);
  }
}

TEST(integers_longer_than_needed_are_read) {
  for (const char* digits : {"1801", "190001", "1a00000001", "1b0000000000000001"}) CHECK(decode(digits) == Value(1));
}

TEST(integers_beyond_64_bits_are_unsupported) {
  CHECK(refusal("3b8000000000000000") == ErrorCode::kUnsupported);
  CHECK(refusal("3bffffffffffffffff") == ErrorCode::kUnsupported);
  CHECK(refusal("c249010000000000000000") == ErrorCode::kUnsupported);
  CHECK(refusal("c349010000000000000000") == ErrorCode::kUnsupported);
}

TEST(floats_in_the_shortest_form_that_is_exact) {
  const std::pair<double, const char*> cases[] = {
      {0.0, "f90000"},
      {-0.0, "f98000"},
      {1.5, "f93e00"},
      {65504.0, "f97bff"},
      {65505.0, "fa477fe100"},
      {0x1p-24, "f90001"},
      {0x1.8p-24, "fa33c00000"},
      {0x1p-25, "fa33000000"},
      {0x1.ff8p-15, "f903ff"},
      {0x1p-14, "f90400"},
      {-4.0, "f9c400"},
      {100000.0, "fa47c35000"},
      {0.1f, "fa3dcccccd"},
      {0x1p-149, "fa00000001"},
      {3.4028234663852886e+38, "fa7f7fffff"},
      {0.1, "fb3fb999999999999a"},
      {0.001, "fb3f50624dd2f1a9fc"},
      {1e300, "fb7e37e43c8800759c"},
      {5e-324, "fb0000000000000001"},
      {std::numeric_limits<double>::infinity(), "f97c00"},
      {-std::numeric_limits<double>::infinity(), "f9fc00"},
  };
  for (const auto& [x, digits] : cases) {
    CHECK_EQ(encode(x), digits);
    const Value back = decode(digits);
    CHECK_EQ(std::bit_cast<std::uint64_t>(*back.get_if<double>()), std::bit_cast<std::uint64_t>(x));
  }
}

TEST(nan_keeps_its_bits) {
  CHECK_EQ(encode(std::numeric_limits<double>::quiet_NaN()), "f97e00");
  for (const char* digits : {"f97e00", "f9fe00", "f97e01", "fb7ff8000000000001", "fb7ff0000000000001"}) {
    const Value value = decode(digits);
    CHECK(std::isnan(*value.get_if<double>()));
    CHECK_EQ(encode(value), digits);
  }
}

TEST(every_half_survives) {
  for (unsigned half = 0; half <= 0xFFFF; ++half) {
    const bool signalling = (half & 0x7C00) == 0x7C00 && (half & 0x3FF) != 0 && (half & 0x200) == 0;
    if (signalling) continue;
    const std::string bytes = {'\xF9', static_cast<char>(half >> 8), static_cast<char>(half & 0xFF)};
    CHECK_EQ(hex(cbor_encode(cbor_decode(bytes_of(bytes)))), hex(bytes));
  }
}

TEST(other_scalars) {
  CHECK(decode("f4") == Value(false));
  CHECK(decode("f5") == Value(true));
  CHECK(decode("f6") == Value());
  CHECK(decode("f7") == Value());
  CHECK_EQ(encode(false), "f4");
  CHECK_EQ(encode(true), "f5");
  CHECK_EQ(encode(Value()), "f6");
  for (const char* digits : {"e0", "f3", "f820", "f8ff"}) CHECK(refusal(digits) == ErrorCode::kCorrupt);
}

TEST(text_and_bytes) {
  CHECK(decode("60") == Value(""));
  CHECK(decode("6449455446") == Value("IETF"));
  CHECK(decode("62c3bc") == Value("\u00fc"));
  CHECK(decode("7f657374726561646d696e67ff") == Value("streaming"));
  CHECK(decode("7fff") == Value(""));
  CHECK(decode("4401020304") == Value(Value::Bytes{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}}));
  CHECK(decode("5f41014102ff") == Value(Value::Bytes{std::byte{1}, std::byte{2}}));
  CHECK_EQ(encode("IETF"), "6449455446");
  CHECK_EQ(encode(Value::Bytes{std::byte{255}}), "41ff");
}

TEST(text_must_be_utf8) {
  for (const char* digits : {"61ff", "62c080", "63eda080", "64f4908080", "61c3", "7f61c361bcff"}) {
    CHECK(refusal(digits) == ErrorCode::kCorrupt);
  }
  CHECK_EQ(*CHECK_THROWS(Error, decode("6361c328")).offset(), 2u);
  CHECK(CHECK_THROWS(Error, cbor_encode("\xff")).code() == ErrorCode::kInvalidArgument);
}

TEST(arrays_and_maps) {
  const Value list = Value::List{1, Value::List{2, 3}, "x"};
  CHECK(decode("830182020361 78") == list);
  CHECK(decode("9f019f0203ff6178ff") == list);
  CHECK_EQ(encode(list), "83018202036178");
  const Value null;
  const Value map = Value::Map{{"a", 1}, {"b", Value::List{2, 3}}, {5, null}};
  CHECK(decode("a361610161628202 0305f6") == map);
  CHECK(decode("bf61610161629f0203ff05f6ff") == map);
  CHECK_EQ(encode(map), "a3616101616282020305f6");
}

TEST(tags_are_passed_over) {
  CHECK(decode("c074323031332d30332d32315432303a30343a30305a") == Value("2013-03-21T20:04:00Z"));
  CHECK(decode("d9d9f7d82082c10102") == (Value(Value::List{1, 2})));
}

TEST(duplicate_keys_are_refused) {
  CHECK(refusal("a2616101616102") == ErrorCode::kCorrupt);
  CHECK(refusal("a20101180102") == ErrorCode::kCorrupt);
  CHECK(refusal("a2f97e0001f97e0002") == ErrorCode::kCorrupt);
  CHECK(refusal("a161 61 a2 01f6 01f6") == ErrorCode::kCorrupt);
  CHECK(refusal("a2 a20102 0304 00 a20102 0304 01") == ErrorCode::kCorrupt);
  CHECK(decode("a20101f93c0002").get_if<Value::Map>()->size() == 2);
  const Value twice = Value::Map{{"a", 1}, {"a", 2}};
  CHECK(CHECK_THROWS(Error, cbor_encode(twice)).code() == ErrorCode::kInvalidArgument);
}

// Each map is the first key of the one around it and has two entries: a check that looked into keys anew at every level
// would need 2^127 steps.
TEST(keys_inside_keys_cost_no_more_than_their_size) {
  std::string bytes;
  for (int i = 0; i < 127; ++i) bytes += "\xA2";
  bytes += unhex("a0");
  for (int i = 0; i < 127; ++i) bytes += unhex("000101");
  const Value value = cbor_decode(bytes_of(bytes));
  CHECK_EQ(hex(cbor_encode(value)), hex(bytes));
}

TEST(not_well_formed) {
  for (const char* digits : {
           "",  // nothing
           "18",
           "19 01",
           "1a 010203",
           "1b 01020304050607",
           "f9 00",
           "fa 000000",
           "fb 00000000000000",  // heads cut short
           "1c",
           "1d",
           "1e",
           "3c",
           "5c",
           "7e",
           "9c",
           "bd",
           "dc",
           "fc",
           "fd",
           "fe",  // reserved
           "1f",
           "3f",
           "df",  // no such length
           "ff",
           "81ff",
           "a1ff",
           "a100ff",
           "bf00ff",
           "82 00ff",  // stray breaks
           "9f",
           "9f00",
           "bf",
           "bf00",
           "bf0000",
           "5f",
           "7f",
           "7f6161",  // never end
           "61",
           "6261",
           "41",
           "8101 00",
           "0000",  // wrong size
           "5f6161ff",
           "7f4161ff",
           "7f7f6161ffff",
           "5f00ff",
           "7fc06161ff",  // wrong pieces
           "81",
           "8201",
           "a1",
           "a101",
           "c0",
           "c1c1",  // nothing inside
       }) {
    CHECK(refusal(digits) == ErrorCode::kCorrupt);
  }
}

TEST(declared_lengths_are_compared_with_what_is_left) {
  for (const char* digits : {"5bffffffffffffffff", "7b7fffffffffffffff", "9bffffffffffffffff00", "bb8000000000000000",
                             "9a00000003 0000", "ba00000002 000000", "7a7fffffff61"}) {
    CHECK(refusal(digits) == ErrorCode::kCorrupt);
  }
}

TEST(depth_is_capped_at_128) {
  const auto nested = [](const char* open, std::size_t levels, const char* close) {
    return repeated(open, levels - 1) + "80" + repeated(close, levels - 1);
  };
  decode(nested("81", 128, ""));
  decode(nested("9f", 128, "ff"));
  decode(nested("a100", 128, ""));
  CHECK(refusal(nested("81", 129, "")) == ErrorCode::kLimit);
  CHECK(refusal(nested("9f", 129, "ff")) == ErrorCode::kLimit);
  CHECK(refusal(nested("a100", 129, "")) == ErrorCode::kLimit);
  CHECK(refusal(repeated("81", 1'000'000)) == ErrorCode::kLimit);
  decode(repeated("c1", 1'000) + "00");

  Value value = 0;
  for (int i = 0; i < 128; ++i) value = Value::List{value};
  CHECK_EQ(cbor_encode(value).size(), 129u);
  value = Value::List{value};
  CHECK(CHECK_THROWS(Error, cbor_encode(value)).code() == ErrorCode::kInvalidArgument);
}

TEST(cursor_walks_without_building) {
  const std::string bytes = unhex("bf 6161 9f 01 20 ff 6162 a1 7f6163ff f93e00 6164 c1f6 6165 f5 ff");
  CborCursor cursor(bytes_of(bytes), 100);
  std::string scratch;
  cursor.enter_map();
  CHECK(cursor.next());
  CHECK_EQ(cursor.read_name(), "a");
  CHECK(cursor.peek() == CborKind::kArray);
  cursor.enter_array();
  CHECK(cursor.next());
  CHECK_EQ(cursor.read_uint(), 1u);
  CHECK(cursor.next());
  CHECK(cursor.peek() == CborKind::kNegative);
  CHECK_EQ(cursor.read_int(), -1);
  CHECK(!cursor.next());
  CHECK(cursor.next());
  CHECK_EQ(cursor.offset(), 107u);
  CborCursor ahead = cursor;
  ahead.skip_value();
  ahead.skip_value();
  CHECK(ahead.next());
  CHECK_EQ(ahead.read_text(scratch), "d");
  CHECK_EQ(cursor.read_text(scratch), "b");
  cursor.enter_map();
  CHECK(cursor.next());
  CHECK_EQ(cursor.read_text(scratch), "c");
  CHECK_EQ(cursor.read_float(), 1.5);
  CHECK(!cursor.next());
  CHECK(cursor.next());
  CHECK_EQ(cursor.read_name(), "d");
  CHECK(cursor.peek() == CborKind::kNull);
  cursor.read_null();
  CHECK(cursor.next());
  CHECK_EQ(cursor.read_name(), "e");
  CHECK(cursor.read_bool());
  CHECK(!cursor.next());
  CHECK(cursor.at_end());
}

TEST(cursor_says_what_it_wanted_and_where) {
  const std::string bytes = unhex("82 6161 20");
  CborCursor cursor(bytes_of(bytes), 10);
  cursor.enter_array();
  CHECK(cursor.next());
  const Error refused = CHECK_THROWS(Error, cursor.read_uint());
  CHECK_EQ(refused.message(), "CBOR: expected an unsigned integer, found text");
  CHECK_EQ(*refused.offset(), 11u);
}

TEST(skipping_checks_what_it_passes) {
  const auto skip = [](std::string_view digits) {
    const std::string bytes = unhex(digits);
    CborCursor cursor(bytes_of(bytes));
    cursor.skip_value();
    return cursor.at_end();
  };
  CHECK(skip("a2 6161 82 f6 fb0000000000000000 6161 5f4101ff"));  // keys may repeat in what is ignored
  CHECK(skip("c2410a"));
  CHECK(skip("3bffffffffffffffff"));
  CHECK_THROWS(Error, skip("8161ff"));
  CHECK_THROWS(Error, skip("bf00ff"));
  CHECK_THROWS(Error, skip("f820"));
  CHECK(CHECK_THROWS(Error, skip(repeated("81", 200))).code() == ErrorCode::kLimit);
}

RUN_TESTS()
