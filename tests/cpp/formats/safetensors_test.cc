#include "weightstore/safetensors.h"

#include <algorithm>
#include <string>
#include <vector>

#include "check.h"
#include "codec/json.h"
#include "test_files.h"
#include "weightstore/error.h"

using namespace weightstore;
using test_files::as_bytes;
using test_files::as_text;
using test_files::source_of;

namespace {

std::string file_of(std::string_view header, std::string_view data = {}) {
  std::string file;
  for (std::uint64_t i = 0, n = header.size(); i < 8; ++i, n >>= 8) file.push_back(static_cast<char>(n & 0xFF));
  return file + std::string(header) + std::string(data);
}

TensorTable read(std::string_view header, std::string_view data = {}) {
  return safetensors::read_table(source_of(file_of(header, data)));
}

Error refusal(std::string_view header, std::string_view data = {}) {
  const Error error = CHECK_THROWS(Error, read(header, data));
  CHECK(error.format() == Format::kSafetensors);
  return error;
}

// Refused as breaking the format.
bool corrupt(std::string_view header, std::string_view data = {}) {
  return refusal(header, data).code() == ErrorCode::kCorrupt;
}

std::string reference_text(std::string_view header, std::string_view data = {}) {
  return refusal(header, data).reference_text();
}

// A header of one U8 tensor of four bytes, with `fields` in place of those that are usual.
std::string one(const std::string& fields = R"("dtype":"U8","shape":[4],"data_offsets":[0,4])") {
  return "{\"t\":{" + fields + "}}";
}

std::string arrays(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

}  // namespace

TEST(an_empty_file_has_no_tensors) {
  CHECK_EQ(read("{}").size(), 0u);
  CHECK_EQ(read("{}      ").size(), 0u);
  CHECK_EQ(read(" \n\t\r{} \n\t\r").size(), 0u);
  CHECK(!read("{}").has_metadata());
}

TEST(tensors_come_with_their_places) {
  const std::string header =
      R"({"b":{"shape":[1,3],"data_offsets":[2,8],"dtype":"F16"},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  const TensorTable table = read(header, "01234567");
  CHECK_EQ(table.size(), 2u);
  CHECK_EQ(table.name(0), "a");
  CHECK_EQ(table.begin(0), 8 + header.size());
  CHECK_EQ(table.nbytes(0), 2u);
  CHECK_EQ(table.name(1), "b");
  CHECK(table.dtype(1) == DType::kF16);
  CHECK((table.shape(1) == Shape{1, 3}));
  CHECK_EQ(table.begin(1), 8 + header.size() + 2);
  CHECK_EQ(table.nbytes(1), 6u);
}

TEST(the_length_field_is_checked_before_anything_is_allocated) {
  const auto refuse = [](std::string_view file) {
    return CHECK_THROWS(Error, safetensors::read_table(source_of(file)));
  };
  CHECK_EQ(refuse("1234567").reference_text(), "header too small");
  CHECK_EQ(refuse("").reference_text(), "header too small");
  CHECK_EQ(refuse(std::string_view("\3\0\0\0\0\0\0\0{}", 10)).reference_text(), "invalid header length");
  // 100,000,000 and one more.
  CHECK_EQ(refuse(std::string_view("\x00\xE1\xF5\x05\0\0\0\0{}", 10)).reference_text(), "invalid header length");
  const Error above = refuse(std::string_view("\x01\xE1\xF5\x05\0\0\0\0{}", 10));
  CHECK_EQ(above.reference_text(), "header too large");
  CHECK(above.code() == ErrorCode::kLimit);
  CHECK(refuse("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}").code() == ErrorCode::kLimit);
  CHECK(refuse(std::string_view("\0\0\0\0\0\0\0\0", 8)).code() == ErrorCode::kCorrupt);
}

TEST(a_lower_limit_holds) {
  Limits limits;
  limits.safetensors_header_bytes = 9;
  CHECK_EQ(safetensors::read_table(source_of(file_of("{}       ")), limits).size(), 0u);
  const Error error = CHECK_THROWS(Error, safetensors::read_table(source_of(file_of("{}        ")), limits));
  CHECK(error.code() == ErrorCode::kLimit);
  limits = {};
  limits.rank = 2;
  const std::string two = file_of(one(R"("dtype":"U8","shape":[2,2],"data_offsets":[0,4])"), "abcd");
  const std::string three = file_of(one(R"("dtype":"U8","shape":[2,2,1],"data_offsets":[0,4])"), "abcd");
  CHECK_EQ(safetensors::read_table(source_of(two), limits).size(), 1u);
  CHECK(CHECK_THROWS(Error, safetensors::read_table(source_of(three), limits)).code() == ErrorCode::kLimit);
}

TEST(the_top_is_one_object) {
  for (const char* header :
       {"", " ", "[]", "null", "\"{}\"", "1", "{", "{}x", "{}{}", "{},", "\xEF\xBB\xBF{}", "{} // x"}) {
    CHECK(corrupt(header));
  }
  CHECK(corrupt(std::string_view("{}\0\0", 4)));
  CHECK(corrupt("{}\xFF"));
}

TEST(metadata_is_text_to_text) {
  const TensorTable table = read(R"({"__metadata__":{"b":"2","a":"\u00e9","":""}})");
  CHECK(table.has_metadata());
  CHECK_EQ(table.metadata().size(), 3u);
  CHECK_EQ(table.metadata().key(0), "");
  CHECK(table.metadata().find("a") == "\u00e9");
  CHECK(table.metadata().find("b") == "2");
  CHECK(read(R"({"__metadata__":{}})").has_metadata());
  CHECK(!read(R"({"__metadata__":null})").has_metadata());
  CHECK_EQ(read(R"({"\u005f_metadata__":{"a":"b"}})").metadata().size(), 1u);
  for (const char* metadata :
       {"1", "[]", "\"x\"", "true", R"({"a":1})", R"({"a":null})", R"({"a":{}})", R"({"a":["b"]})", R"({"a":"b",})",
        R"({"a":"1","a":"2"})", R"({"a":"1","\u0061":"1"})"}) {
    CHECK(corrupt(std::string("{\"__metadata__\":") + metadata + "}"));
  }
  CHECK(corrupt(R"({"__metadata__":{},"__metadata__":{}})"));
  CHECK(corrupt(R"({"__metadata__":null,"__metadata__":null})"));
}

TEST(fields_of_a_tensor) {
  const std::string data = "abcd";
  CHECK_EQ(read(one(), data).size(), 1u);
  CHECK_EQ(read(one(R"("data_offsets":[0,4],"x":{"dtype":[1.5e3,null]},"shape":[ 4 ],"\u0064type":"U8")"), data).size(),
           1u);
  for (const char* fields :
       {R"("shape":[4],"data_offsets":[0,4])", R"("dtype":"U8","data_offsets":[0,4])", R"("dtype":"U8","shape":[4])",
        "", R"("dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4])",
        R"("dtype":"U8","shape":[4],"shape":[4],"data_offsets":[0,4])",
        R"("dtype":"U8","shape":[4],"data_offsets":[0,4],"data_offsets":[0,4])",
        R"("dtype":{"U8":null},"shape":[4],"data_offsets":[0,4])", R"("dtype":null,"shape":[4],"data_offsets":[0,4])",
        R"("dtype":"U8","shape":4,"data_offsets":[0,4])", R"("dtype":"U8","shape":null,"data_offsets":[0,4])",
        R"("dtype":"U8","shape":[4],"data_offsets":[0])", R"("dtype":"U8","shape":[4],"data_offsets":[])",
        R"("dtype":"U8","shape":[4],"data_offsets":[0,4,4])", R"("dtype":"U8","shape":[4],"data_offsets":{"0":4})",
        R"("dtype":"U8","shape":[4],"data_offsets":[0,4],"x":[1e400])",
        R"("dtype":"U8","shape":[4],"data_offsets":[0,4],"x":)", R"("dtype":"","shape":[4],"data_offsets":[0,4])",
        R"("dtype":"U8","shape":[4],"data_offsets":[0,4],)"}) {
    CHECK(corrupt(one(fields), data));
  }
  for (const char* tensor : {R"(["U8",[4],[0,4]])", "null", "1", "\"U8\"", "[]"}) {
    CHECK(corrupt(std::string("{\"t\":") + tensor + "}", data));
  }
}

TEST(the_usual_spelling_and_others_say_the_same) {
  const std::string usual = R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})";
  const std::string data(24, 'x');
  for (const char* other : {
           R"({"dtype":"F32","shape":[2, 3],"data_offsets":[0,24]})",
           R"({"dtype":"F32","shape":[2,3 ],"data_offsets":[0,24]})",
           R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24],"more":1})",
           R"({"dtype":"F32","shape":[2,3],"data_offsets":[ 0,24] })",
           R"({"shape":[2,3],"dtype":"F32","data_offsets":[0,24]})",
           R"({"dtype":"\u004632","shape":[2,3],"data_offsets":[0,24]})",
           R"({"dtyp\u0065":"F32","shape":[2,3],"data_offsets":[0,24]})",
       }) {
    for (const std::string& text : {usual, std::string(other)}) {
      const TensorTable table = read("{\"t\":" + text + "}", data);
      CHECK(table.dtype(0) == DType::kF32);
      CHECK((table.shape(0) == Shape{2, 3}));
      CHECK_EQ(table.nbytes(0), 24u);
    }
  }
  // Nearly the usual spelling, and wrong.
  for (const char* bad : {
           R"({"dtype":"F32","shape":[2,3,],"data_offsets":[0,24]})",
           R"({"dtype":"F32","shape":[,2,3],"data_offsets":[0,24]})",
           R"({"dtype":"F32","shape":[2,03],"data_offsets":[0,24]})",
           R"({"dtype":"F32","shape":[2,3.0],"data_offsets":[0,24]})",
           R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24,24]})",
           R"({"dtype":"F32","shape":[2,3],"data_offsets":[0]})",
           R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})",
           R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24])",
           R"({"dtype":"F32 ","shape":[2,3],"data_offsets":[0,24]})",
           R"({"dtype":"","shape":[2,3],"data_offsets":[0,24]})",
           R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,18446744073709551640]})",
           R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24],"shape":[2,3]})",
       }) {
    CHECK(corrupt("{\"t\":" + std::string(bad) + "}", data));
  }
}

TEST(integers_are_plain) {
  for (const char* dimension :
       {"-4", "-0", "4.0", "4e0", "04", "\"4\"", "18446744073709551616", "null", "[4]", "+4", "0x4"}) {
    CHECK(corrupt(one(std::string("\"dtype\":\"U8\",\"shape\":[") + dimension + "],\"data_offsets\":[0,4]"), "abcd"));
    CHECK(corrupt(one(std::string("\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,") + dimension + "]"), "abcd"));
  }
}

TEST(ignored_fields_nest_up_to_the_reference_depth) {
  const std::string fields = R"("dtype":"U8","shape":[4],"data_offsets":[0,4],"x":)";
  CHECK_EQ(read(one(fields + arrays(125)), "abcd").size(), 1u);
  CHECK(corrupt(one(fields + arrays(126)), "abcd"));
  CHECK(corrupt(one(fields + arrays(100'000)), "abcd"));
  // Duplicate keys are only refused where they mean something.
  CHECK_EQ(read(one(fields + R"({"a":1,"a":2},"x":3)"), "abcd").size(), 1u);
}

TEST(names_are_any_text) {
  const auto name_of_one = [](const std::string& name) {
    return std::string(read("{\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", "x").name(0));
  };
  CHECK_EQ(name_of_one(""), "");
  CHECK_EQ(name_of_one("a/b\x7f"), "a/b\x7f");
  CHECK_EQ(name_of_one(R"(\u0000)"), std::string(1, '\0'));
  CHECK_EQ(name_of_one(R"(\ud83d\ude00)"), "\xF0\x9F\x98\x80");
  CHECK_EQ(name_of_one("\u00e9"), "\u00e9");
  for (const char* name : {R"(\ud83d)", R"(\ude00)", R"(\x)", "\n", "\xFF", "\xC0\x80", "\xED\xA0\x80"}) {
    CHECK(corrupt("{\"" + std::string(name) + "\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", "x"));
  }
}

TEST(duplicate_names_are_refused) {
  const std::string tensor = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  CHECK(corrupt("{\"t\":" + tensor + ",\"t\":" + tensor + "}", "abcd"));
  CHECK(corrupt("{\"t\":" + tensor + ",\"\\u0074\":" + tensor + "}", "abcd"));
  const std::string empty = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  const Error error = refusal("{\"t\":" + empty + ",\"u\":" + empty + ",\"t\":" + empty + "}");
  CHECK_EQ(error.tensor(), "t");
}

TEST(every_type_has_its_size) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string fields = "\"dtype\":\"" + std::string(name_of(dtype)) + "\",\"shape\":[4,2],\"data_offsets\":[0,";
    if (!in_safetensors(dtype)) {
      CHECK(corrupt(one(fields + "8]"), "abcdefgh"));
      continue;
    }
    const std::size_t bytes = bits_of(dtype);
    CHECK(read(one(fields + std::to_string(bytes) + "]"), std::string(bytes, 'x')).dtype(0) == dtype);
    CHECK(corrupt(one(fields + std::to_string(bytes + 1) + "]"), std::string(bytes + 1, 'x')));
    CHECK(corrupt(one(fields + std::to_string(bytes - 1) + "]"), std::string(bytes - 1, 'x')));
  }
  for (const char* dtype : {"f32", "F128", "C128", "I4", "U4", "E8M0", "F4_E2M1", "F8_E4M3FN", "", "F32 ", "Flex32"}) {
    CHECK(corrupt(one(std::string("\"dtype\":\"") + dtype + "\",\"shape\":[1],\"data_offsets\":[0,4]"), "abcd"));
  }
}

TEST(elements_smaller_than_a_byte_end_on_one) {
  CHECK_EQ(read(one(R"("dtype":"F4","shape":[2,3],"data_offsets":[0,3])"), "abc").nbytes(0), 3u);
  CHECK_EQ(read(one(R"("dtype":"F6_E3M2","shape":[4],"data_offsets":[0,3])"), "abc").nbytes(0), 3u);
  CHECK_EQ(read(one(R"("dtype":"F4","shape":[0],"data_offsets":[0,0])")).nbytes(0), 0u);
  for (const char* fields :
       {R"("dtype":"F4","shape":[3],"data_offsets":[0,1])", R"("dtype":"F4","shape":[3],"data_offsets":[0,2])",
        R"("dtype":"F4","shape":[],"data_offsets":[0,1])", R"("dtype":"F6_E2M3","shape":[3],"data_offsets":[0,2])"}) {
    CHECK(reference_text(one(fields), "ab").find("subbytes") != std::string::npos);
  }
}

TEST(sizes_that_overflow_are_refused) {
  const char* const kOverflow = "overflow computing buffer size from shape and/or element type";
  for (const char* shape : {"4294967296,4294967296", "18446744073709551615,2", "18446744073709551615,2,0",
                            "2305843009213693952", "9223372036854775808,2", "4611686018427387905,4"}) {
    CHECK_EQ(
        reference_text(one(std::string("\"dtype\":\"U8\",\"shape\":[") + shape + "],\"data_offsets\":[0,4]"), "abcd"),
        kOverflow);
  }
  CHECK_EQ(read(one(R"("dtype":"U8","shape":[0,18446744073709551615,2],"data_offsets":[0,0])")).nbytes(0), 0u);
}

TEST(tensors_tile_the_data) {
  const auto two = [](const char* a, const char* b) {
    return std::string(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)") + a +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + b + "}}";
  };
  CHECK_EQ(read(two("[0,2]", "[2,4]"), "abcd").name(0), "a");
  CHECK_EQ(read(two("[2,4]", "[0,2]"), "abcd").name(0), "b");
  CHECK_EQ(reference_text(two("[0,2]", "[3,5]"), "abcde"), "invalid offset for tensor `b`");
  CHECK_EQ(reference_text(two("[0,2]", "[1,3]"), "abc"), "invalid offset for tensor `b`");
  CHECK_EQ(reference_text(two("[0,2]", "[0,2]"), "ab"), "invalid offset for tensor `b`");
  CHECK_EQ(reference_text(two("[1,3]", "[3,5]"), "abcde"), "invalid offset for tensor `a`");
  CHECK_EQ(reference_text(two("[0,2]", "[4,2]"), "abcd"), "invalid offset for tensor `b`");
  CHECK_EQ(reference_text(two("[0,2]", "[2,4]"), "abcde"), "incomplete metadata, file not fully covered");
  CHECK_EQ(reference_text(two("[0,2]", "[2,4]"), "abc"), "incomplete metadata, file not fully covered");
  CHECK_EQ(reference_text(two("[0,2]", "[2,5]"), "abcde"), "invalid shape, data type, or offset for tensor");
  CHECK(corrupt(two("[0,2]", "[18446744073709551614,18446744073709551615]"), "abcd"));
  CHECK(corrupt(two("[0,2]", "[18446744073709551613,18446744073709551615]"), "abcd"));
  CHECK_EQ(reference_text("{}", "x"), "incomplete metadata, file not fully covered");
}

TEST(empty_tensors_lie_on_boundaries) {
  const auto with_empty = [](int at) {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"e":{"dtype":"F32","shape":[3,0],"data_offsets":[)" +
           std::to_string(at) + "," + std::to_string(at) + R"(]},"f":{"dtype":"F32","shape":[0],"data_offsets":[)" +
           std::to_string(at) + "," + std::to_string(at) + "]}}";
  };
  CHECK_EQ(read(with_empty(0), "ab").size(), 3u);
  CHECK_EQ(read(with_empty(2), "ab").size(), 3u);
  CHECK(corrupt(with_empty(1), "ab"));
  CHECK(corrupt(with_empty(3), "ab"));
}

TEST(data_need_not_be_aligned) {
  const TensorTable table = read("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}} ", "abcd");
  CHECK_EQ(table.begin(0) % 2, 1u);
}

TEST(every_truncation_is_refused) {
  const std::string file = file_of(
      R"({"__metadata__":{"k":"v\u00e9"},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"F16","shape":[1,3],"data_offsets":[2,8]}} )",
      "01234567");
  CHECK_EQ(safetensors::read_table(source_of(file)).size(), 2u);
  for (std::size_t size = 0; size < file.size(); ++size) {
    const Error error = CHECK_THROWS(Error, safetensors::read_table(source_of(std::string_view(file).substr(0, size))));
    CHECK(error.code() == ErrorCode::kCorrupt);
  }
  // The same with a length field that fits what is left of the header.
  const std::string header = file.substr(8, file.size() - 8 - 8);
  for (std::size_t size = 0; size + 1 < header.size(); ++size) CHECK(corrupt(header.substr(0, size), "01234567"));
}

TEST(errors_tell_the_tensor_and_the_place_in_the_file) {
  const Error error = refusal(R"({"a":{"dtype":"U8","shape":[x],"data_offsets":[0,4]}})", "abcd");
  CHECK_EQ(error.tensor(), "a");
  CHECK(error.offset() == 8 + 28u);
  CHECK_EQ(refusal("{\"\xFF\":1}").reference_text(), "invalid UTF-8 in header: invalid utf-8 sequence from index 2");
}

TEST(verdicts_on_adversarial_files) {
  if (test_files::test_data().empty()) {
    std::printf("skipped verdicts_on_adversarial_files: WEIGHTSTORE_TESTDATA is not set\n");
    return;
  }
  const std::filesystem::path folder = test_files::test_data() / "testkit" / "safetensors_cases";
  const Value verdicts = json_decode(test_files::read_file(folder / "verdicts.json"));
  const Value::Map& cases = *verdicts.get_if<Value::Map>();
  CHECK(cases.size() >= 80);
  for (const auto& [name, verdict] : cases) {
    const std::string& stem = *name.get_if<std::string>();
    const std::string file = test_files::read_file(folder / (stem + ".safetensors"));
    std::string found = "accept";
    try {
      safetensors::read_table(source_of(file));
    } catch (const Error&) {
      found = "refuse";
    }
    CHECK_EQ(stem + ": " + found, stem + ": " + *verdict.get_if<std::string>());
  }
}

RUN_TESTS()
