// What the writer makes of its contents: the bytes of a SafeTensors file, in memory and on disk.

#include "weightstore/writer.h"

#include <string>
#include <vector>

#include "check.h"
#include "test_files.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/safetensors.h"

using namespace weightstore;
using test_files::as_bytes;
using test_files::as_text;

namespace {

std::string written(const Writer& writer, TensorOrder order = TensorOrder::kCanonical) {
  WriteOptions options;
  options.order = order;
  return as_text(writer.write_bytes(Format::kSafetensors, options));
}

// The header's JSON without its padding.
std::string header_of(std::string_view file) {
  const auto length = static_cast<unsigned char>(file[0]) + 256u * static_cast<unsigned char>(file[1]);
  std::string_view header = file.substr(8, length);
  return std::string(header.substr(0, header.find_last_not_of(' ') + 1));
}

Error refusal(const Writer& writer) { return CHECK_THROWS(Error, written(writer)); }

}  // namespace

TEST(golden_bytes_of_the_reference) {
  Writer writer;
  CHECK_EQ(written(writer), std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
  const std::string zeros(16, '\0');
  writer.add("test", DType::kI32, {2, 2}, as_bytes(zeros));
  CHECK_EQ(written(writer), std::string("\x40\0\0\0\0\0\0\0", 8) +
                                R"({"test":{"dtype":"I32","shape":[2,2],"data_offsets":[0,16]}}    )" + zeros);
}

TEST(types_come_in_descending_rank_and_names_in_ascending_order) {
  const std::vector<std::string> expected = {
      "U64",         "I64",         "F64",     "C64",     "F32",     "U32", "I32", "BF16",    "F16",     "U16", "I16",
      "F8_E5M2FNUZ", "F8_E4M3FNUZ", "F8_E8M0", "F8_E4M3", "F8_E5M2", "I8",  "U8",  "F6_E3M2", "F6_E2M3", "F4",  "BOOL"};
  Writer writer;
  std::vector<std::string> data;
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i)
    data.push_back(test_files::pattern(bits_of(static_cast<DType>(i)), 9));
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    for (const char* name : {"b", "a"}) {
      writer.add(name + std::to_string(i), static_cast<DType>(i), {8}, as_bytes(data[static_cast<std::size_t>(i)]));
    }
  }
  const std::string file = written(writer);
  const TensorTable table = safetensors::read_table(test_files::source_of(file));
  CHECK_EQ(table.size(), 2 * expected.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    CHECK_EQ(name_of(table.dtype(i)), expected[i / 2]);
    CHECK_EQ(table.name(i).front(), i % 2 == 0 ? 'a' : 'b');
    CHECK_EQ(file.substr(table.begin(i), table.nbytes(i)), data[static_cast<std::size_t>(table.dtype(i))]);
    // Naturally aligned, the data section being so.
    CHECK_EQ(table.begin(i) % std::max(1u, bits_of(table.dtype(i)) / 8), 0u);
  }
}

TEST(names_are_ordered_by_their_bytes) {
  Writer writer;
  for (const char* name : {"\xF0\x9F\x98\x80", "\xEF\xBF\xBD", "z", "B", "a", "10", "9", ""}) {
    writer.add(name, DType::kU8, {0}, {});
  }
  const TensorTable table = safetensors::read_table(test_files::source_of(written(writer)));
  for (std::size_t i = 1; i < table.size(); ++i) CHECK(table.name(i - 1) < table.name(i));
}

TEST(the_order_of_addition_is_kept_when_asked) {
  Writer writer;
  writer.add("b", DType::kU8, {1}, as_bytes("b"));
  writer.add("c", DType::kF32, {1}, as_bytes("cccc"));
  writer.add("a", DType::kU8, {1}, as_bytes("a"));
  CHECK_EQ(
      header_of(written(writer, TensorOrder::kAsAdded)),
      R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"c":{"dtype":"F32","shape":[1],"data_offsets":[1,5]},)"
      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[5,6]}})");
  CHECK(written(writer, TensorOrder::kAsAdded).ends_with("bcccca"));
  CHECK(written(writer).ends_with("ccccab"));
}

TEST(metadata_comes_first_and_sorted) {
  Writer writer;
  writer.set_metadata(TextMap());
  CHECK_EQ(header_of(written(writer)), R"({"__metadata__":{}})");
  writer.set_metadata("z", "1");
  writer.set_metadata("format", "pt");
  writer.set_metadata("a\n", "\"\x01/\x7f\u00e9");
  writer.set_metadata("z", "2");
  writer.add("t", DType::kU8, {}, as_bytes("x"));
  CHECK_EQ(header_of(written(writer)),
           "{\"__metadata__\":{\"a\\n\":\"\\\"\\u0001/\x7f\u00e9\",\"format\":\"pt\",\"z\":\"2\"},"
           "\"t\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}");
}

TEST(the_header_is_padded_to_eight) {
  for (std::size_t length = 0; length < 17; ++length) {
    Writer writer;
    writer.set_metadata("k", std::string(length, 'v'));
    const std::string file = written(writer);
    CHECK_EQ(file.size() % 8, 0u);
    CHECK(file.size() - 8 - header_of(file).size() < 8);
    CHECK_EQ(safetensors::read_table(test_files::source_of(file)).metadata().value(0).size(), length);
  }
}

TEST(contents_that_cannot_be_a_file_are_refused) {
  const std::string data(64, 'x');
  const auto refused = [&](const std::string& name, DType dtype, const Shape& shape, std::size_t bytes,
                           ErrorCode code) {
    Writer writer;
    writer.add(name, dtype, shape, as_bytes(data).first(bytes));
    const Error error = refusal(writer);
    CHECK(error.format() == Format::kSafetensors);
    CHECK_EQ(error.tensor(), name);
    return error.code() == code;
  };
  CHECK(refused("__metadata__", DType::kU8, {1}, 1, ErrorCode::kInvalidArgument));
  CHECK(refused("\xFF", DType::kU8, {1}, 1, ErrorCode::kInvalidArgument));
  CHECK(refused("t", DType::kU8, {2}, 1, ErrorCode::kInvalidArgument));
  CHECK(refused("t", DType::kF32, {2}, 2, ErrorCode::kInvalidArgument));
  CHECK(refused("t", DType::kF4, {3}, 1, ErrorCode::kInvalidArgument));
  CHECK(refused("t", DType::kF4, {3}, 2, ErrorCode::kInvalidArgument));
  CHECK(refused("t", DType::kF4, {}, 1, ErrorCode::kInvalidArgument));
  CHECK(refused("t", DType::kU8, {1ull << 32, 1ull << 32}, 0, ErrorCode::kInvalidArgument));
  for (const DType dtype : {DType::kFlex32, DType::kBoolU8, DType::kBoolU32, DType::kQFloat}) {
    CHECK(refused("t", dtype, {1}, 4, ErrorCode::kUnsupported));
  }
}

TEST(a_tensor_needs_a_producer) {
  Writer writer;
  const Error error = CHECK_THROWS(Error, writer.add(NewTensor{"t", DType::kU8, {1}, nullptr, std::nullopt, nullptr}));
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK_EQ(error.tensor(), "t");
  CHECK(writer.tensors().empty());
}

TEST(duplicates_are_refused) {
  Writer tensors;
  tensors.add("t", DType::kU8, {1}, as_bytes("a"));
  tensors.add("t", DType::kI8, {1}, as_bytes("b"));
  CHECK(refusal(tensors).code() == ErrorCode::kInvalidArgument);
  CHECK_EQ(refusal(tensors).tensor(), "t");

  TextMap metadata;
  metadata.add("k", "1");
  metadata.add("j", "2");
  metadata.add("k", "3");
  Writer twice;
  twice.set_metadata(metadata);
  CHECK(refusal(twice).code() == ErrorCode::kInvalidArgument);
}

TEST(metadata_must_be_text_and_scalars_have_no_place) {
  Writer value;
  value.set_metadata("k", "\xC3");
  CHECK(refusal(value).code() == ErrorCode::kInvalidArgument);
  Writer key;
  key.set_metadata("\xED\xA0\x80", "v");
  CHECK(refusal(key).code() == ErrorCode::kInvalidArgument);
  Writer scalar;
  scalar.set_scalar("step", std::int64_t{1});
  CHECK(refusal(scalar).code() == ErrorCode::kUnsupported);
}

TEST(a_header_above_the_limit_is_refused) {
  Writer writer;
  // {"__metadata__":{"k":"..."}} has 25 bytes beside the value.
  writer.set_metadata("k", std::string(100'000'000 - 25, 'v'));
  CHECK_EQ(safetensors::plan(writer, TensorOrder::kCanonical).header.size(), 100'000'008u);
  writer.set_metadata("k", std::string(100'000'000 - 24, 'v'));
  const Error error = CHECK_THROWS(Error, safetensors::plan(writer, TensorOrder::kCanonical));
  CHECK(error.code() == ErrorCode::kLimit);
  CHECK_EQ(error.reference_text(), "header too large");
}

TEST(data_beyond_file_offsets_is_refused_without_touching_it) {
  Writer writer;
  const auto never = [](std::uint64_t, MutableBytes) { throw Error(ErrorCode::kIo, "touched"); };
  for (const char* name : {"a", "b", "c"}) {
    writer.add({name, DType::kU8, {(1ull << 61) - 8}, deferred_bytes((1ull << 61) - 8, never), std::nullopt, nullptr});
  }
  const Error error = CHECK_THROWS(Error, safetensors::plan(writer, TensorOrder::kCanonical));
  CHECK(error.code() == ErrorCode::kLimit);
}

TEST(a_file_is_what_write_bytes_gives) {
  const test_files::TempDir dir;
  const std::string data = test_files::pattern(3 << 20);
  Writer writer;
  writer.add("big", DType::kF32, {data.size() / 4}, as_bytes(data));
  writer.add("small", DType::kU8, {3}, as_bytes("abc"));
  writer.set_metadata("k", "v");
  for (const bool durable : {false, true}) {
    for (const bool checksums : {false, true}) {
      WriteOptions options;
      options.durable = durable;
      options.checksums = checksums;
      writer.write_file(dir / "m.safetensors", options);
      CHECK(test_files::read_file(dir / "m.safetensors") == as_text(writer.write_bytes(Format::kSafetensors, options)));
    }
  }
}

TEST(deferred_tensors_are_filled_once_in_order) {
  std::string filled;
  const auto fill = [&](std::uint64_t offset, MutableBytes out) {
    CHECK_EQ(offset, filled.size());
    for (std::byte& byte : out) {
      byte = static_cast<std::byte>(filled.size() % 251);
      filled.push_back(static_cast<char>(byte));
    }
  };
  Writer writer;
  writer.add({"t", DType::kU8, {1000}, deferred_bytes(1000, fill), std::nullopt, nullptr});
  safetensors::plan(writer, TensorOrder::kCanonical);
  CHECK(filled.empty());
  CHECK(written(writer).ends_with(filled));
  CHECK_EQ(filled.size(), 1000u);
}

TEST(the_format_is_taken_from_the_name) {
  const test_files::TempDir dir;
  Writer writer;
  writer.add("t", DType::kU8, {1}, as_bytes("x"));
  writer.write_file(dir / "UPPER.SafeTensors");
  CHECK(Reader::open(dir / "UPPER.SafeTensors").format() == Format::kSafetensors);
  for (const char* name : {"model.bin", "model", "safetensors", "model.safetensors.index.json", ".bpk"}) {
    CHECK(CHECK_THROWS(Error, writer.write_file(dir / name)).code() == ErrorCode::kInvalidArgument);
    CHECK(!std::filesystem::exists(dir / name));
  }
}

TEST(a_refused_or_failed_write_leaves_the_old_file) {
  const test_files::TempDir dir;
  test_files::write_file(dir / "m.safetensors", "old");
  Writer bad;
  bad.add("__metadata__", DType::kU8, {1}, as_bytes("x"));
  const Error refused = CHECK_THROWS(Error, bad.write_file(dir / "m.safetensors"));
  CHECK_EQ(refused.path(), (dir / "m.safetensors").string());
  Writer failing;
  failing.add({"t",
               DType::kU8,
               {9},
               deferred_bytes(9, [](std::uint64_t, MutableBytes) { throw std::bad_alloc(); }),
               std::nullopt,
               nullptr});
  CHECK_THROWS(std::bad_alloc, failing.write_file(dir / "m.safetensors"));
  Writer good;
  good.add("t", DType::kU8, {1}, as_bytes("x"));
  WriteOptions cancelled;
  cancelled.progress = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
  CHECK(CHECK_THROWS(Error, good.write_file(dir / "m.safetensors", cancelled)).code() == ErrorCode::kCancelled);
  WriteOptions keep;
  keep.overwrite = false;
  CHECK(CHECK_THROWS(Error, good.write_file(dir / "m.safetensors", keep)).code() == ErrorCode::kConflict);
  CHECK_EQ(test_files::read_file(dir / "m.safetensors"), "old");
  // And nothing else.
  CHECK_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(checksums_are_one_metadata_entry) {
  Writer writer;
  writer.set_metadata("k", "v");
  writer.add("b", DType::kU8, {9}, as_bytes("123456789"));
  writer.add("a", DType::kU8, {0}, {});
  WriteOptions options;
  options.checksums = true;
  const std::string file = as_text(writer.write_bytes(Format::kSafetensors, options));
  const TensorTable table = safetensors::read_table(test_files::source_of(file));
  CHECK(table.metadata().find(kChecksumKey) == R"({"a":"00000000","b":"e3069283"})");
  CHECK(table.metadata().find("k") == "v");
  // Written again with other bytes, the entry is replaced.
  Writer again;
  again.set_metadata(table.metadata());
  again.add("b", DType::kU8, {1}, as_bytes("x"));
  const std::string second = as_text(again.write_bytes(Format::kSafetensors, options));
  const TensorTable replaced = safetensors::read_table(test_files::source_of(second));
  CHECK_EQ(replaced.metadata().find(kChecksumKey)->size(), std::string_view(R"({"b":"00000000"})").size());
}

RUN_TESTS()
