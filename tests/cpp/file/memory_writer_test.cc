// Files that are written to memory by several threads are what one thread streams.

#include "file/memory_writer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/layout_stream.h"
#include "check.h"
#include "test_files.h"
#include "weightstore/byte_producer.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

using namespace weightstore;
using test_files::as_bytes;
using test_files::as_text;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// Tensors in memory, produced and strided ones, with gaps between them, across the borders of windows.
struct Contents {
  std::vector<std::string> data;
  Writer writer;
  Layout layout;

  Contents() {
    data = {test_files::pattern(9 * kMiB + 5), test_files::pattern(7, 3), test_files::pattern(5 * kMiB, 2),
            test_files::pattern(4 * kMiB, 4)};
    writer.add("large", DType::kU8, {data[0].size()}, as_bytes(data[0]));
    writer.add("tiny", DType::kU8, {data[1].size()}, as_bytes(data[1]));
    add_produced();
    StridedArray columns{as_bytes(data[3]).data(), 1, {1024, 4096}, {1, 1024}};
    writer.add({"strided", DType::kU8, {1024, 4096}, strided_bytes(columns)});
    layout.header = "the header";
    std::uint64_t position = layout.header.size();
    for (std::size_t i = 0; i < writer.tensors().size(); ++i) {
      position += i * 1000 * 1000;
      const std::uint64_t size = writer.tensors()[i].bytes->size();
      layout.placements.push_back({i, position, position + size});
      position += size;
    }
    layout.file_size = position + 77;
  }

  void add_produced() {
    const auto fill = [this](std::uint64_t offset, MutableBytes out) {
      std::copy_n(as_bytes(data[2]).begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    };
    writer.add({"produced", DType::kU8, {data[2].size()}, deferred_bytes(data[2].size(), fill)});
  }
};

std::vector<std::byte> dirty(std::uint64_t size) { return std::vector<std::byte>(size, std::byte{0xEE}); }

}  // namespace

TEST(memory_has_what_a_stream_has) {
  const Contents contents;
  const auto expected = stream_memory(contents.layout, contents.writer.tensors(), {}, nullptr);
  auto out = dirty(contents.layout.file_size);
  const auto crcs = write_memory(contents.layout, contents.writer.tensors(), false, {}, out);
  CHECK(crcs.empty());
  CHECK(out == expected);
}

TEST(memory_has_the_checksums_of_a_stream) {
  const Contents contents;
  std::vector<std::uint32_t> expected;
  stream_memory(contents.layout, contents.writer.tensors(), {}, &expected);
  auto out = dirty(contents.layout.file_size);
  CHECK(write_memory(contents.layout, contents.writer.tensors(), true, {}, out) == expected);
}

TEST(progress_ends_with_the_whole_file) {
  const Contents contents;
  auto out = dirty(contents.layout.file_size);
  std::uint64_t last = 0;
  const Progress progress = [&](std::uint64_t done, std::uint64_t all, std::string_view) {
    CHECK(done >= last && done <= all);
    CHECK_EQ(all, contents.layout.file_size);
    last = done;
    return true;
  };
  write_memory(contents.layout, contents.writer.tensors(), false, progress, out);
  CHECK_EQ(last, contents.layout.file_size);
}

TEST(a_cancelled_write_is_an_error) {
  const Contents contents;
  auto out = dirty(contents.layout.file_size);
  const Progress stop = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
  const Error error = CHECK_THROWS(Error, write_memory(contents.layout, contents.writer.tensors(), false, stop, out));
  CHECK(error.code() == ErrorCode::kCancelled);
}

TEST(a_producer_that_fails_is_named) {
  Writer writer;
  const auto fail = [](std::uint64_t, MutableBytes) { throw Error(ErrorCode::kIo, "unplugged"); };
  writer.add({"broken", DType::kU8, {3}, deferred_bytes(3, fail)});
  CHECK_EQ(CHECK_THROWS(Error, writer.write_bytes(Format::kSafetensors)).tensor(), "broken");
}

TEST(memory_is_asked_for_once_and_only_for_contents_that_are_a_file) {
  Writer writer;
  writer.add("t", DType::kU8, {3}, as_bytes("abc"));
  std::vector<std::byte> bytes;
  int calls = 0;
  const auto allocate = [&](std::uint64_t size) -> MutableBytes {
    ++calls;
    bytes = dirty(size);
    return bytes;
  };
  writer.write_memory(Format::kSafetensors, allocate);
  CHECK(bytes == writer.write_bytes(Format::kSafetensors));
  CHECK_EQ(calls, 1);
  writer.add("t", DType::kU8, {3}, as_bytes("abc"));
  CHECK_THROWS(Error, writer.write_memory(Format::kSafetensors, allocate));
  CHECK_EQ(calls, 1);
}
