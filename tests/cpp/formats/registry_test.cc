// What holds for every format, whichever formats there are.

#include "formats/registry.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "numpy_files.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/writer.h"
#include "zip_files.h"

using namespace weightstore;
using test_files::as_bytes;
using test_files::source_of;

namespace {

// Every type of Burnpack has a name of its own since 0.21.
WriteOptions newest() {
  WriteOptions options;
  options.burn = BurnRelease::k022;
  return options;
}

std::vector<Format> all_ids() {
  std::vector<Format> ids;
  for (int i = 1; i < kFormatCount; ++i) ids.push_back(static_cast<Format>(i));
  return ids;
}

// A small file of the format.
std::string example_of(Format format) {
  switch (format) {
    case Format::kSafetensors:
    case Format::kBurnpack: {
      Writer writer;
      writer.add("w", DType::kU8, {4}, as_bytes("abcd"));
      return test_files::as_text(writer.write_bytes(format));
    }
    case Format::kGguf: {
      Writer writer;
      writer.add("w", DType::kI8, {4}, as_bytes("abcd"));
      return test_files::as_text(writer.write_bytes(format));
    }
    case Format::kSafetensorsIndex:
      return R"({"metadata":{},"weight_map":{}})";
    case Format::kPytorch:
      return zip_files::torch_file("\x80\2}.");
    case Format::kNumpy:
      return zip_files::archive({{"w.npy", numpy_files::array("<u1", false, "(4,)", "abcd")}});
    case Format::kUnknown:
      break;
  }
  check::fail(__FILE__, __LINE__, "no example of format " + std::string(to_string(format)));
}

}  // namespace

TEST(every_format_is_in_the_list_once) {
  CHECK_EQ(all_ids().size(), all_formats().size());
  std::set<std::string_view> names;
  for (const FormatSpec* spec : all_formats()) {
    CHECK(names.insert(spec->name).second);
    CHECK_EQ(to_string(spec->id), spec->name);
    CHECK(&spec_of(spec->id) == spec);
    CHECK(!spec->title.empty() && !spec->described.empty());
    CHECK(spec->recognises != nullptr && spec->open != nullptr && spec->stored_as != nullptr);
  }
  CHECK(CHECK_THROWS(Error, spec_of(Format::kUnknown)).code() == ErrorCode::kInvalidArgument);
}

TEST(endings_are_lower_case_and_of_one_format) {
  std::set<std::string_view> endings;
  for (const FormatSpec* spec : all_formats()) {
    CHECK(!spec->endings.empty());
    for (const std::string_view ending : spec->endings) {
      CHECK(ending.starts_with('.'));
      CHECK(std::none_of(ending.begin(), ending.end(), [](char c) { return c >= 'A' && c <= 'Z'; }));
      CHECK(endings.insert(ending).second);
    }
  }
}

TEST(a_name_asks_for_the_format_of_its_ending) {
  for (const FormatSpec* spec : all_formats()) {
    for (const std::string_view ending : spec->endings) {
      const std::string name = "model" + std::string(ending);
      if (spec->plan != nullptr) {
        CHECK(format_of_name(name) == spec->id);
      } else {
        CHECK(CHECK_THROWS(Error, format_of_name(name)).code() == ErrorCode::kInvalidArgument);
      }
    }
  }
}

TEST(a_file_is_recognised_by_its_own_format_alone) {
  for (const Format format : all_ids()) {
    const auto source = source_of(example_of(format));
    std::string bytes(std::min<std::size_t>(static_cast<std::size_t>(source->size()), kHeadBytes), '\0');
    source->read_at(0, std::as_writable_bytes(std::span(bytes)));
    for (const FormatSpec* spec : all_formats()) {
      CHECK_EQ(spec->recognises({bytes, *source}), spec->id == format);
    }
    CHECK(detect_format(*source) == format);
  }
}

TEST(a_file_is_opened_by_its_own_format) {
  for (const Format format : all_ids()) {
    const FormatSpec& spec = spec_of(format);
    const auto source = source_of(example_of(format));
    if (spec.is_index) {
      CHECK(CHECK_THROWS(Error, spec.open(source, {})).code() == ErrorCode::kUnsupported);
      continue;
    }
    const OpenedFile file = spec.open(source, {});
    CHECK(file.table.sources().front() == source);
    // A limit comes with the field that raises it.
    CHECK_EQ(file.expansion.bytes == UINT64_MAX, file.expansion.field.empty());
  }
}

TEST(a_format_that_is_written_holds_the_types_it_says) {
  for (const FormatSpec* spec : all_formats()) {
    if (spec->plan == nullptr) continue;
    for (int i = 0; i < kDTypeCount; ++i) {
      const auto dtype = static_cast<DType>(i);
      if (dtype == DType::kQFloat) continue;  // needs a scheme
      const BlockSize block = block_of(dtype).value_or(BlockSize{8, bits_of(dtype)});
      const std::string bytes = test_files::pattern(block.bytes, 3);
      Writer writer;
      writer.add("t", dtype, {block.elements}, as_bytes(bytes));
      if (!spec->holds(dtype)) {
        CHECK_EQ(CHECK_THROWS(Error, writer.write_bytes(spec->id, newest())).tensor(), "t");
        continue;
      }
      const std::vector<std::byte> written = writer.write_bytes(spec->id, newest());
      const TensorTable table = spec->open(memory_source(written), {}).table;
      CHECK(table.dtype(0) == dtype);
      std::string read(static_cast<std::size_t>(table.nbytes(0)), '\0');
      table.sources()[0]->read_at(table.begin(0), std::as_writable_bytes(std::span(read)));
      CHECK_EQ(read, bytes);
    }
  }
}

TEST(a_type_is_stored_as_one_of_the_same_size_that_the_format_holds) {
  for (const FormatSpec* spec : all_formats()) {
    for (int i = 0; i < kDTypeCount; ++i) {
      const auto dtype = static_cast<DType>(i);
      const auto stored = spec->stored_as(dtype);
      if (!stored) continue;
      CHECK(spec->holds(*stored));
      CHECK_EQ(bits_of(*stored), bits_of(dtype));
    }
  }
}

TEST(scalars_and_ids_come_back_where_the_format_has_them) {
  for (const FormatSpec* spec : all_formats()) {
    if (spec->plan == nullptr) continue;
    Writer writer;
    const std::string bytes = "abcd";
    writer.add({"t", DType::kU8, {4}, resident_bytes(as_bytes(bytes)), 7, nullptr});
    writer.set_scalar("step", std::int64_t{3});
    if (!spec->has_scalars) {
      CHECK(CHECK_THROWS(Error, writer.write_bytes(spec->id)).code() == ErrorCode::kUnsupported);
      continue;
    }
    const std::vector<std::byte> written = writer.write_bytes(spec->id);
    const TensorTable table = spec->open(memory_source(written), {}).table;
    CHECK(table.scalars().find("step") != nullptr);
    CHECK_EQ(table[0].param_id.has_value(), spec->has_param_ids);
  }
}

TEST(a_format_that_is_only_read_cannot_be_written) {
  for (const FormatSpec* spec : all_formats()) {
    if (spec->plan != nullptr) continue;
    CHECK(CHECK_THROWS(Error, Writer().write_bytes(spec->id)).code() == ErrorCode::kInvalidArgument);
  }
}

RUN_TESTS()
