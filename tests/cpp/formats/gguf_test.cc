// GGUF files, byte by byte. tests/python/gguf_files compares with the gguf package, and has the hostile files.

#include <string>

#include "check.h"
#include "formats/gguf/reader.h"
#include "formats/gguf/writer.h"
#include "hex.h"
#include "weightstore/error.h"
#include "weightstore/file_bytes.h"

using namespace weightstore;

namespace {

// One entry, one tensor of I8 [2, 3].
const std::string kSmall = unhex(
    "47475546 03000000 0100000000000000 0100000000000000"
    "0100000000000000 6b 04000000 07000000"
    "0100000000000000 77 02000000 0300000000000000 0200000000000000 18000000 0000000000000000"
    "0000000000000000000000000000"
    "010203040506 0000000000000000000000000000000000000000000000000000");

TypedMetadata one_entry() {
  TypedMetadata metadata;
  metadata.set("k", 7);
  return metadata;
}

std::string written(const FileContents& contents) {
  const std::vector<std::byte> bytes = file_bytes(contents, gguf::plan(contents));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string message_of(const std::string& file, const ReadOptions& options = {}) {
  try {
    gguf::open(memory_source(bytes_of(file)), options);
  } catch (const Error& error) {
    CHECK(error.format() == Format::kGguf);
    return error.what();
  }
  return "";
}

}  // namespace

TEST(golden_bytes_are_written) {
  const std::string data = "\1\2\3\4\5\6";
  FileContents contents;
  contents.add("w", DType::kI8, {2, 3}, bytes_of(data));
  contents.set_typed_metadata(std::make_shared<const TypedMetadata>(one_entry()));
  CHECK_EQ(hex(written(contents)), hex(kSmall));
}

TEST(golden_bytes_are_read) {
  const OpenedFile file = gguf::open(memory_source(bytes_of(kSmall)), {});
  CHECK_EQ(file.table.size(), 1u);
  const TensorInfo info = file.table[0];
  CHECK(info.name == "w" && info.dtype == DType::kI8 && info.shape == Shape({2, 3}));
  CHECK(info.begin == 96 && info.nbytes() == 6);
  CHECK_EQ(hex(kSmall.substr(96, 6)), "010203040506");
  CHECK(file.table.metadata().find("k") == "7");
  const TypedMetadata& metadata = *file.table.typed_metadata();
  CHECK(metadata.size() == 1 && metadata.key(0) == "k" && metadata.value(0).type_name() == "UINT32");
  CHECK(std::get<std::uint64_t>(metadata.value(0).scalar()) == 7);
  CHECK(!file.part);
}

TEST(text_metadata_are_strings_and_typed_ones_win) {
  FileContents contents;
  contents.set_metadata("k", "text");
  contents.set_metadata("other", "text");
  contents.set_typed_metadata(std::make_shared<const TypedMetadata>(one_entry()));
  const std::string file = written(contents);
  const OpenedFile found = gguf::open(memory_source(bytes_of(file)), {});
  CHECK(found.table.metadata().find("k") == "7" && found.table.metadata().find("other") == "text");
}

TEST(a_header_that_is_cut_anywhere_is_refused) {
  for (std::size_t size = 0; size < 102; ++size) CHECK(!message_of(kSmall.substr(0, size)).empty());
  CHECK(message_of(kSmall.substr(0, 102)).empty());
}

TEST(the_header_has_a_limit) {
  ReadOptions options;
  options.limits.gguf_header_bytes = 60;
  CHECK(message_of(kSmall, options).find("gguf_header_bytes") != std::string::npos);
}

TEST(typed_metadata_go_to_formats_that_have_them) {
  TypedMetadata metadata;
  metadata.set("a", 1);
  metadata.add("b", MetadataType::kBool, "\1");
  metadata.set("a", 2);
  CHECK(metadata.size() == 2 && as_text(metadata.value(0)) == "2" && as_text(metadata.value(1)) == "true");
  CHECK(CHECK_THROWS(Error, metadata.add("c", MetadataType::kUint32, "\1")).code() == ErrorCode::kInvalidArgument);
  CHECK(CHECK_THROWS(Error, metadata.add(std::string("a\0b", 3), MetadataType::kBool, "\1")).code() ==
        ErrorCode::kInvalidArgument);
}

RUN_TESTS()
