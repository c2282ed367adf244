#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "formats/numpy/reader.h"
#include "numpy_files.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "zip_files.h"

using namespace weightstore;
using namespace std::string_literals;
using numpy_files::array;
using numpy_files::header_text;
using numpy_files::with_header;
using test_files::source_of;
using zip_files::archive;
using zip_files::deflated;

namespace {

TensorTable table_of(const std::string& file, const ReadOptions& options = {}) {
  return numpy::open(source_of(file), options).table;
}

std::string content(const TensorTable& table, std::string_view name) {
  const std::size_t i = table.at(name);
  std::string out(static_cast<std::size_t>(table.nbytes(i)), '\0');
  table.sources()[table.source_of(i)]->read_at(table.begin(i), std::as_writable_bytes(std::span(out)));
  return out;
}

Error refused(const std::string& file, const ReadOptions& options = {}) {
  const Error error = CHECK_THROWS(Error, table_of(file, options));
  CHECK(error.format() == Format::kNumpy);
  return error;
}

bool says(const Error& error, std::string_view what) { return error.message().find(what) != std::string::npos; }

}  // namespace

TEST(an_array_by_itself) {
  for (const int version : {1, 2, 3}) {
    const TensorTable table = table_of(array("<i4", false, "(2, 1)", "abcdefgh", version));
    CHECK_EQ(table.size(), 1u);
    CHECK_EQ(table.name(0), "arr_0");
    CHECK(table.dtype(0) == DType::kI32);
    CHECK(table.shape(0) == (Shape{2, 1}));
    CHECK_EQ(content(table, "arr_0"), "abcdefgh");
    CHECK_EQ(table.source_of(0), 0u);
  }
}

TEST(types_and_shapes) {
  const std::vector<std::pair<const char*, DType>> types = {
      {"|b1", DType::kBool}, {"|i1", DType::kI8},    {"|u1", DType::kU8},  {"<i2", DType::kI16},
      {"<u2", DType::kU16},  {"<f2", DType::kF16},   {"<i4", DType::kI32}, {"<u4", DType::kU32},
      {"<f4", DType::kF32},  {"<i8", DType::kI64},   {"<u8", DType::kU64}, {"<f8", DType::kF64},
      {"<c8", DType::kC64},  {"<c16", DType::kC128}, {"f4", DType::kF32},  {"=i8", DType::kI64},
  };
  for (const auto& [descr, dtype] : types) {
    const std::string data = test_files::pattern(bits_of(dtype) / 8 * 3);
    const TensorTable table = table_of(array(descr, false, "(3,)", data));
    CHECK(table.dtype(0) == dtype);
    CHECK_EQ(content(table, "arr_0"), data);
  }
  CHECK(table_of(array("<f4", false, "()", "abcd")).shape(0).empty());
  CHECK(table_of(array("<f4", true, "(0, 7)", "")).shape(0) == (Shape{0, 7}));
  CHECK(table_of(array("|u1", false, "(2L, 1L)", "ab")).shape(0) == (Shape{2, 1}));
}

TEST(both_byte_orders) {
  CHECK_EQ(content(table_of(array(">u2", false, "(2,)", "abcd")), "arr_0"), "badc");
  CHECK_EQ(content(table_of(array(">f8", false, "(1,)", "abcdefgh")), "arr_0"), "hgfedcba");
  CHECK_EQ(content(table_of(array(">c8", false, "(1,)", "abcdefgh")), "arr_0"), "dcbahgfe");
}

TEST(fortran_order) {
  // 2 rows of 3, column by column.
  CHECK_EQ(content(table_of(array("|u1", true, "(2, 3)", "adbecf")), "arr_0"), "abcdef");
  CHECK_EQ(content(table_of(array(">u2", true, "(2, 2)", "AaCcBbDd")), "arr_0"), "aAbBcCdD");
  const TensorTable one = table_of(array("|u1", true, "(1, 3, 1)", "abc"));
  CHECK_EQ(one.source_of(0), 0u);  // lies the same in both orders
}

TEST(archives) {
  const std::string file = archive({{"a.npy", array("|u1", false, "(3,)", "abc")},
                                    deflated("b/c.npy", array("<i2", false, "(2,)", "defg")),
                                    {"d.npy.npy", array("|u1", true, "(2, 2)", "hjik"), false},
                                    deflated("e.npy", array("|u1", true, "(2, 2)", "hjik")),
                                    deflated("f.npy", array(">i2", false, "(2,)", "dcfe")),
                                    deflated("empty.npy", array("<f4", false, "(0,)", ""))});
  const TensorTable table = table_of(file);
  CHECK_EQ(table.size(), 6u);
  CHECK_EQ(content(table, "a"), "abc");
  CHECK_EQ(content(table, "b/c"), "defg");
  CHECK_EQ(content(table, "d.npy"), "hijk");
  CHECK_EQ(content(table, "e"), "hijk");
  CHECK_EQ(content(table, "f"), "cdef");
  CHECK_EQ(content(table, "empty"), "");
  CHECK_EQ(table.source_of(table.at("a")), 0u);
}

TEST(compressed_arrays_are_read_from_any_place) {
  const std::string data = test_files::pattern(9 << 20);
  const std::string file = archive({deflated("a.npy", array("|u1", false, "(9437184,)", data))});
  const TensorTable table = table_of(file);
  const ByteSource& source = *table.sources()[table.source_of(0)];
  // Forward, backward, across the places that are remembered, and to the end.
  for (const std::size_t offset : {0u, 5000000u, 100u, 4194300u, 9000000u, 4194304u, 8388600u, 1u, 9437183u}) {
    std::string out(std::min<std::size_t>(100, data.size() - offset), '\0');
    source.read_at(offset, std::as_writable_bytes(std::span(out)));
    CHECK_EQ(out, data.substr(offset, out.size()));
  }
  std::string whole(data.size(), '\0');
  Reader::open(source_of(file)).read(0, std::as_writable_bytes(std::span(whole)));
  CHECK(whole == data);
  std::string beyond(2, '\0');
  CHECK(CHECK_THROWS(Error, source.read_at(data.size() - 1, std::as_writable_bytes(std::span(beyond)))).code() ==
        ErrorCode::kIo);
}

TEST(elements_that_are_no_numbers_are_refused_by_name) {
  const std::vector<std::pair<const char*, const char*>> types = {
      {"|O", "object array"},   {"O", "object array"}, {"|S3", "strings"},  {"<U4", "strings"},
      {"<M8[ns]", "dates"},     {"<m8", "dates"},      {"|V2", "bfloat16"}, {"<f16", "long doubles"},
      {"<c32", "long doubles"}, {"<i16", "not read"},  {"", "not read"},    {"<", "not read"},
  };
  for (const auto& [descr, words] : types) {
    const Error error = refused(array(descr, false, "(1,)", "abcdefghijklmnop"));
    CHECK(error.code() == ErrorCode::kUnsupported);
    CHECK(says(error, words));
    CHECK_EQ(error.tensor(), "arr_0");
  }
  const Error structured =
      refused(with_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", "abcd"));
  CHECK(structured.code() == ErrorCode::kUnsupported && says(structured, "structured"));
}

TEST(what_is_not_read_may_be_skipped) {
  const std::string file = archive({{"a.npy", array("|O", false, "(1,)", "pickle")},
                                    {"notes.txt", "text"},
                                    {"b.npy", array("|u1", false, "(1,)", "b")}});
  const TensorTable table = table_of(file);
  CHECK_EQ(table.size(), 1u);
  CHECK_EQ(content(table, "b"), "b");
  CHECK_EQ(table.left_out().size(), 2u);
  CHECK_EQ(table.left_out()[0].name, "a");
  CHECK(table.left_out()[0].reason.find("object array") != std::string::npos);
  CHECK_EQ(table.left_out()[1].name, "notes.txt");
  const Error error = CHECK_THROWS(Error, table.at("a"));
  CHECK(error.code() == ErrorCode::kUnsupported && says(error, "left out"));
  ReadOptions options;
  options.opaque = Opaque::kError;
  CHECK_EQ(CHECK_THROWS(Error, table_of(file, options)).tensor(), "a");
  // Where nothing is left, the file is refused.
  CHECK_EQ(refused(archive({{"a.npy", array("|O", false, "(1,)", "pickle")}})).tensor(), "a");
}

TEST(headers_that_numpy_does_not_write) {
  const std::string order = "'fortran_order': False, ";
  const std::vector<std::string> texts = {
      ""s,
      "{"s,
      "{}"s,
      "[]"s,
      "{'descr': '<f4'}"s,
      "{'descr': '<f4', " + order + "}",
      "{'descr': '<f4', 'descr': '<f4', " + order + "'shape': (1,)}",
      "{'descr': '<f4', " + order + "'shape': (1,), 'more': 1}",
      "{'descr': '<f4', " + order + "'shape': (1)}",
      "{'descr': '<f4', " + order + "'shape': 1}",
      "{'descr': '<f4', " + order + "'shape': [1]}",
      "{'descr': '<f4', " + order + "'shape': (-1,)}",
      "{'descr': '<f4', " + order + "'shape': (1.0,)}",
      "{'descr': '<f4', " + order + "'shape': (0x1,)}",
      "{'descr': '<f4', " + order + "'shape': (,)}",
      "{'descr': '<f4', " + order + "'shape': (1,,)}",
      "{'descr': '<f4', " + order + "'shape': (99999999999999999999,)}",
      "{'descr': '<f4', " + order + "'shape': (1,)} x",
      "{'descr': '<f4', " + order + "'shape': (1,)",
      "{'descr': '<f4' " + order + "'shape': (1,)}",
      "{'descr': '\\x3cf4', " + order + "'shape': (1,)}",
      "{'descr': '<f4, " + order + "\"shape\": (1,)}",
      "{'descr': None, " + order + "'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
      "{'descr': '<f4', " + order + "'shape': __import__('os')}",
  };
  for (const std::string& text : texts) {
    CHECK(refused(with_header(text, "abcd")).code() == ErrorCode::kCorrupt);
  }
  // The same in other words.
  CHECK_EQ(
      content(table_of(with_header("\n{\"shape\":(1,),'descr':\"<f4\",'fortran_order':False}\t", "abcd")), "arr_0"),
      "abcd");
}

TEST(sizes_that_do_not_fit) {
  CHECK(refused(array("<f4", false, "(2,)", "abcd")).code() == ErrorCode::kCorrupt);
  CHECK(refused(array("<f4", false, "(1,)", "abcde")).code() == ErrorCode::kCorrupt);
  CHECK(refused(array("<f4", false, "(4611686018427387904, 4)", "")).code() == ErrorCode::kCorrupt);
  CHECK(refused(array("<f8", false, "(2305843009213693952,)", "")).code() == ErrorCode::kCorrupt);
  CHECK(refused(archive({deflated("a.npy", array("|u1", false, "(9,)", "abc"))})).code() == ErrorCode::kCorrupt);
  std::string many;
  for (int i = 0; i < 65; ++i) many += "1,";
  CHECK(refused(array("|u1", false, "(" + many + ")", "a")).code() == ErrorCode::kLimit);
  CHECK(refused(with_header(header_text("|u1", false, "(1,)") + std::string(10'000, ' '), "a")).code() ==
        ErrorCode::kLimit);
  CHECK(refused("\x93NUMPY\4\0\1\0{"s).code() == ErrorCode::kUnsupported);
  CHECK(refused("\x93NUMPY\2\0\xff\xff\xff\xff{}"s).code() == ErrorCode::kCorrupt);
}

TEST(cut_anywhere_it_is_refused) {
  const std::string npy = array("<u2", true, "(2, 2)", "aabbccdd");
  const std::string npz = archive({{"a.npy", npy}, deflated("b.npy", array("<u2", false, "(2,)", "aabb"))}, false);
  for (std::size_t size = 0; size < npy.size(); ++size) refused(npy.substr(0, size));
  for (std::size_t size = 0; size < npz.size(); ++size) refused(npz.substr(0, size));
}

TEST(damaged_compressed_data_is_an_error_when_it_is_read) {
  std::string file = archive({deflated("a.npy", array("|u1", false, "(70000,)", std::string(70'000, 'x')))});
  // The length of the second block, behind the local header, the name and the first block.
  const std::size_t second = 30 + "a.npy"s.size() + 5 + 0xFFFF;
  CHECK_EQ(file[second], '\1');
  file[second + 1] ^= 0x10;
  const Reader reader = Reader::open(source_of(file));
  std::string out(70'000, '\0');
  const Error error = CHECK_THROWS(Error, reader.read(0, std::as_writable_bytes(std::span(out))));
  CHECK(error.code() == ErrorCode::kCorrupt);
}

TEST(checksums_of_members_are_compared) {
  ReadOptions lazy;
  lazy.verify = Verify::kLazy;
  ReadOptions full;
  full.verify = Verify::kFull;
  const std::string good =
      archive({{"a.npy", array("|u1", false, "(3,)", "abc")}, {"b.npy", array("|u1", true, "(2, 2)", "efgh")}});
  CHECK_EQ(Reader::open(source_of(good), full).verify_all(), 2u);
  std::string damaged = good;
  damaged[damaged.find("efgh")] = 'x';
  const Reader reader = Reader::open(source_of(damaged), lazy);
  std::string out(3, '\0');
  reader.read(reader.table().at("a"), std::as_writable_bytes(std::span(out)));
  CHECK_EQ(out, "abc");
  out.resize(4);
  const Error error = CHECK_THROWS(Error, reader.read(reader.table().at("b"), std::as_writable_bytes(std::span(out))));
  CHECK(error.code() == ErrorCode::kCorrupt && says(error, "CRC"));
  CHECK_EQ(error.tensor(), "b");
  CHECK(CHECK_THROWS(Error, Reader::open(source_of(damaged), full)).code() == ErrorCode::kCorrupt);
  // Without a CRC there is nothing to compare, as the members that are deflated here.
  const std::string none = archive({deflated("a.npy", array("|u1", false, "(3,)", "abc"))});
  CHECK(CHECK_THROWS(Error, Reader::open(source_of(none), full)).code() == ErrorCode::kUnsupported);
  CHECK_EQ(Reader::open(source_of(none)).without_checksum().size(), 1u);
}

TEST(expanded_arrays_need_a_limit) {
  const std::string file = archive({deflated("a.npy", array("|u1", true, "(100, 100)", std::string(10'000, 'x')))});
  ReadOptions options;
  options.limits.expanded_bytes = 0;  // sixteen times the file are allowed
  CHECK_EQ(Reader::open(source_of(file), options).load(std::vector<std::size_t>{0}).size(), 1u);
  const OpenedFile opened = numpy::open(source_of(file), options);
  CHECK_EQ(opened.expansion.bytes, 16 * file.size());
}

RUN_TESTS()
