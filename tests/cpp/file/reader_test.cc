// Reader: the same bytes by every way out of a file.

#include "weightstore/reader.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/writer.h"

using namespace weightstore;
using test_files::as_bytes;
using test_files::as_text;
using test_files::TempDir;

namespace {

MutableBytes writable(std::string& text) { return {reinterpret_cast<std::byte*>(text.data()), text.size()}; }

// A file with tensors of many sizes, empty ones among them.
struct Sample {
  explicit Sample(bool checksums = false) {
    for (const std::size_t size : {0u, 1u, 63u, 64u, 65u, 4096u, 5000u, 300'000u}) {
      data.push_back(test_files::pattern(size, static_cast<std::uint32_t>(size)));
    }
    for (const std::string& bytes : data)
      writer.add("t" + std::to_string(bytes.size()), DType::kU8, {bytes.size()}, as_bytes(bytes));
    WriteOptions options;
    options.checksums = checksums;
    options.durable = false;
    writer.write_file(path(), options);
  }

  std::filesystem::path path() const { return dir / "m.safetensors"; }

  Reader open(bool map, Verify verify = Verify::kOff) const {
    ReadOptions options;
    options.map = map;
    options.verify = verify;
    return Reader::open(path(), options);
  }

  const std::string& bytes_of(const Reader& reader, std::size_t tensor) const {
    for (const std::string& bytes : data) {
      if (reader.table().name(tensor) == "t" + std::to_string(bytes.size())) return bytes;
    }
    throw Error(ErrorCode::kNotFound, "no such tensor");
  }

  // Flips one bit of the last byte of a tensor in the file.
  void damage(const std::string& name) const {
    const Reader reader = open(false);
    const TensorInfo info = reader.table()[reader.table().at(name)];
    std::string file = test_files::read_file(path());
    file[info.end - 1] = static_cast<char>(file[info.end - 1] ^ 4);
    test_files::write_file(path(), file);
  }

  TempDir dir;
  std::vector<std::string> data;
  Writer writer;
};

std::string read(const Reader& reader, std::size_t tensor) {
  std::string out(reader.table().nbytes(tensor), '?');
  reader.read(tensor, writable(out));
  return out;
}

std::vector<std::size_t> all(const Reader& reader) {
  std::vector<std::size_t> tensors;
  for (std::size_t i = 0; i < reader.table().size(); ++i) tensors.push_back(i);
  return tensors;
}

}  // namespace

TEST(every_way_out_gives_the_same_bytes) {
  const Sample sample;
  for (const bool map : {true, false}) {
    const Reader reader = sample.open(map);
    CHECK(reader.format() == Format::kSafetensors);
    const auto loaded = reader.load(all(reader));
    for (std::size_t i = 0; i < reader.table().size(); ++i) {
      const std::string& expected = sample.bytes_of(reader, i);
      CHECK(read(reader, i) == expected);
      CHECK(as_text(loaded[i].bytes) == expected);
      const auto view = reader.view(i);
      CHECK_EQ(view.has_value(), map);
      const auto private_view = reader.private_view(i);
      CHECK_EQ(private_view.has_value(), map);
      if (map) CHECK(as_text(view->bytes) == expected && as_text(private_view->bytes) == expected);
    }
  }
}

TEST(read_many_fills_each_output) {
  const Sample sample;
  for (const unsigned threads : {0u, 1u, 3u}) {
    ReadOptions options;
    options.threads = threads;
    const Reader reader = Reader::open(sample.path(), options);
    std::vector<std::string> outs;
    for (const std::size_t i : all(reader)) outs.emplace_back(reader.table().nbytes(i), '?');
    std::vector<Reader::Request> requests;
    for (const std::size_t i : all(reader)) requests.push_back({i, writable(outs[i])});
    std::uint64_t last = 0;
    reader.read_many(requests, [&](std::uint64_t done, std::uint64_t, std::string_view) {
      CHECK(done >= last);
      last = done;
      return true;
    });
    for (const std::size_t i : all(reader)) CHECK(outs[i] == sample.bytes_of(reader, i));
    std::uint64_t total = 0;
    for (const std::string& out : outs) total += out.size();
    CHECK_EQ(last, total);
    CHECK(CHECK_THROWS(Error, reader.read_many(requests, [](auto, auto, auto) { return false; })).code() ==
          ErrorCode::kCancelled);
    outs[2].push_back('x');
    requests[2].out = writable(outs[2]);
    const Error error = CHECK_THROWS(Error, reader.read_many(requests));
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK_EQ(error.tensor(), reader.table().name(2));
  }
}

TEST(outputs_must_not_share_memory) {
  Writer writer;
  writer.add("a", DType::kU8, {4}, as_bytes("aaaa"));
  writer.add("b", DType::kU8, {4}, as_bytes("bbbb"));
  const auto file = writer.write_bytes(Format::kSafetensors);
  const Reader reader = Reader::open(memory_source(file));
  std::string out(8, '?');
  const auto part = [&](std::size_t begin) { return writable(out).subspan(begin, 4); };
  for (const std::size_t begin : {0u, 1u, 3u}) {
    const Error error =
        CHECK_THROWS(Error, reader.read_many(std::vector<Reader::Request>{{1, part(begin)}, {0, part(0)}}));
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    CHECK_EQ(out, "????????");
  }
  reader.read_many(std::vector<Reader::Request>{{1, part(4)}, {0, part(0)}});
  CHECK_EQ(out, "aaaabbbb");
}

TEST(loaded_tensors_are_aligned_and_independent_of_the_file) {
  const Sample sample;
  for (const bool map : {true, false}) {
    const Reader reader = sample.open(map);
    std::vector<std::size_t> tensors = all(reader);
    std::reverse(tensors.begin(), tensors.end());
    tensors.push_back(tensors[0]);  // the same twice: two copies
    const auto loaded = reader.load(tensors);
    const std::string file = test_files::read_file(sample.path());
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      CHECK_EQ(reinterpret_cast<std::uintptr_t>(loaded[k].bytes.data()) % 64, 0u);
      CHECK(as_text(loaded[k].bytes) == sample.bytes_of(reader, tensors[k]));
    }
    for (const auto& tensor : loaded) std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0x55});
    CHECK(test_files::read_file(sample.path()) == file);
    CHECK(read(reader, tensors[0]) == sample.bytes_of(reader, tensors[0]));
  }
}

TEST(loaded_tensors_do_not_overlap) {
  const Sample sample;
  const Reader reader = sample.open(true);
  std::vector<std::size_t> tensors = all(reader);
  tensors.insert(tensors.end(), tensors.begin(), tensors.end());
  const auto loaded = reader.load(tensors);
  for (std::size_t k = 0; k < loaded.size(); ++k)
    std::fill(loaded[k].bytes.begin(), loaded[k].bytes.end(), static_cast<std::byte>(k));
  for (std::size_t k = 0; k < loaded.size(); ++k) {
    for (const std::byte byte : loaded[k].bytes) CHECK(byte == static_cast<std::byte>(k));
  }
  CHECK(reader.load({}).empty());
}

TEST(private_views_leave_the_file_as_it_is) {
  const Sample sample;
  const std::string file = test_files::read_file(sample.path());
  {
    const Reader reader = sample.open(true);
    const std::size_t tensor = reader.table().at("t5000");
    const auto view = reader.private_view(tensor);
    std::fill(view->bytes.begin(), view->bytes.end(), std::byte{7});
    // Views of one Reader share their changes; everything else sees the file.
    CHECK(reader.private_view(tensor)->bytes[4999] == std::byte{7});
    CHECK(as_text(reader.view(tensor)->bytes) == sample.bytes_of(reader, tensor));
    CHECK(read(reader, tensor) == sample.bytes_of(reader, tensor));
  }
  CHECK(test_files::read_file(sample.path()) == file);
}

TEST(views_outlive_the_reader_and_the_file) {
  Sample sample;
  std::optional<SharedBytes> view;
  std::optional<SharedMutableBytes> private_view;
  std::vector<SharedMutableBytes> loaded;
  std::string expected;
  {
    const Reader reader = sample.open(true);
    const std::size_t tensor = reader.table().at("t300000");
    expected = sample.bytes_of(reader, tensor);
    view = reader.view(tensor);
    private_view = reader.private_view(tensor);
    loaded = reader.load(std::vector{tensor});
  }
  std::filesystem::remove(sample.path());
  CHECK(as_text(view->bytes) == expected);
  private_view->bytes[0] = std::byte{1};
  CHECK(as_text(private_view->bytes.subspan(1)) == expected.substr(1));
  CHECK(as_text(loaded[0].bytes) == expected);
}

TEST(views_of_memory_outlive_the_reader) {
  Writer writer;
  const std::string data = test_files::pattern(1000);
  writer.add("t", DType::kU8, {1000}, as_bytes(data));
  std::optional<SharedBytes> view;
  {
    const Reader reader = Reader::open(test_files::source_of(as_text(writer.write_bytes(Format::kSafetensors))));
    view = reader.view(0);
    CHECK(!reader.private_view(0));
  }
  CHECK(as_text(view->bytes) == data);
}

TEST(static_data_is_never_copied) {
  static const std::string kFile =
      std::string("\x38\0\0\0\0\0\0\0", 8) + R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}   )" + "abcd";
  const Reader reader = Reader::from_static(as_bytes(kFile));
  const auto view = reader.view(reader.table().at("t"));
  CHECK(view->bytes.data() == as_bytes(kFile).data() + kFile.size() - 4);
  CHECK(view->owner == nullptr);
  CHECK_EQ(as_text(view->bytes), "abcd");
}

TEST(ranges_are_bounded) {
  const Sample sample;
  for (const bool map : {true, false}) {
    const Reader reader = sample.open(map);
    const std::size_t tensor = reader.table().at("t4096");
    const std::string& expected = sample.bytes_of(reader, tensor);
    std::string out(96, '?');
    reader.read_range(tensor, 4000, writable(out));
    CHECK(out == expected.substr(4000));
    reader.read_range(tensor, 4096, {});
    for (const std::uint64_t offset : {std::uint64_t{4001}, std::uint64_t{4097}, UINT64_MAX, UINT64_MAX - 95}) {
      const Error error = CHECK_THROWS(Error, reader.read_range(tensor, offset, writable(out)));
      CHECK(error.code() == ErrorCode::kInvalidArgument);
      CHECK_EQ(error.tensor(), "t4096");
    }
  }
}

TEST(slices_of_a_file_equal_slices_of_its_bytes) {
  const TempDir dir;
  const Shape shape = {7, 5, 11};
  const std::string data = test_files::pattern(7 * 5 * 11 * 4);
  Writer writer;
  writer.add("before", DType::kF64, {1}, as_bytes(data).first(8));
  writer.add("t", DType::kF32, shape, as_bytes(data));
  writer.write_file(dir / "m.safetensors");
  std::mt19937 random(5);
  for (const bool map : {true, false}) {
    ReadOptions options;
    options.map = map;
    const Reader reader = Reader::open(dir / "m.safetensors", options);
    const std::size_t tensor = reader.table().at("t");
    for (int round = 0; round < 300; ++round) {
      std::vector<std::vector<std::uint64_t>> indices;
      std::vector<SliceDim> dims;
      for (const std::uint64_t size : shape) {
        const std::int64_t step = (random() % 2 == 0 ? 1 : -1) * static_cast<std::int64_t>(1 + random() % 3);
        const std::uint64_t start = random() % size;
        std::vector<std::uint64_t> picked;
        for (auto i = static_cast<std::int64_t>(start); i >= 0 && i < static_cast<std::int64_t>(size); i += step) {
          picked.push_back(static_cast<std::uint64_t>(i));
        }
        picked.resize(random() % (picked.size() + 1));
        dims.push_back({start, step, picked.size()});
        indices.push_back(picked);
      }
      std::string expected;
      for (const std::uint64_t i : indices[0]) {
        for (const std::uint64_t j : indices[1]) {
          for (const std::uint64_t k : indices[2]) expected += data.substr(((i * 5 + j) * 11 + k) * 4, 4);
        }
      }
      std::string out(expected.size(), '?');
      reader.read_slice(tensor, dims, writable(out));
      CHECK(out == expected);
    }
    CHECK_EQ(CHECK_THROWS(Error, reader.read_slice(tensor, {}, {})).tensor(), "t");
  }
}

TEST(damage_is_found_when_asked_for) {
  Sample sample(true);
  for (const bool map : {true, false}) {
    for (const Verify verify : {Verify::kOff, Verify::kLazy, Verify::kFull}) {
      const Reader reader = sample.open(map, verify);
      CHECK_EQ(reader.verify_all(), sample.data.size());
      for (const std::size_t i : all(reader)) CHECK(read(reader, i) == sample.bytes_of(reader, i));
    }
  }
  sample.damage("t5000");
  const auto is_damage = [](const Error& error) {
    return error.code() == ErrorCode::kCorrupt && error.tensor() == "t5000";
  };
  for (const bool map : {true, false}) {
    CHECK(is_damage(CHECK_THROWS(Error, sample.open(map, Verify::kFull))));

    const Reader off = sample.open(map);
    const std::size_t tensor = off.table().at("t5000");
    CHECK(read(off, tensor) != sample.bytes_of(off, tensor));
    CHECK(is_damage(CHECK_THROWS(Error, off.verify_all())));

    const Reader lazy = sample.open(map, Verify::kLazy);
    std::string byte(1, '?');
    const std::vector<SliceDim> first = {{0, 1, 1}};
    for (int time = 0; time < 2; ++time) {
      CHECK(is_damage(CHECK_THROWS(Error, read(lazy, tensor))));
      CHECK(is_damage(CHECK_THROWS(Error, lazy.read_range(tensor, 0, writable(byte)))));
      CHECK(is_damage(CHECK_THROWS(Error, lazy.read_slice(tensor, first, writable(byte)))));
      CHECK(is_damage(CHECK_THROWS(Error, lazy.load(std::vector{tensor}))));
      if (map) {
        CHECK(is_damage(CHECK_THROWS(Error, lazy.view(tensor))));
        CHECK(is_damage(CHECK_THROWS(Error, lazy.private_view(tensor))));
      }
    }
    // The others are fine.
    for (const std::size_t i : all(lazy)) {
      if (i != tensor) CHECK(read(lazy, i) == sample.bytes_of(lazy, i));
    }
    CHECK(is_damage(CHECK_THROWS(Error, lazy.verify_all())));
  }
}

TEST(full_verification_needs_checksums) {
  const Sample sample;
  CHECK(CHECK_THROWS(Error, sample.open(true, Verify::kFull)).code() == ErrorCode::kUnsupported);
  const Reader lazy = sample.open(true, Verify::kLazy);
  for (const std::size_t i : all(lazy)) CHECK(read(lazy, i) == sample.bytes_of(lazy, i));
  CHECK_EQ(lazy.verify_all(), 0u);
}

TEST(a_broken_checksum_entry_matters_only_when_verifying) {
  const TempDir dir;
  Writer writer;
  writer.set_metadata("weightstore.crc32c", "{");
  writer.add("t", DType::kU8, {1}, as_bytes("x"));
  writer.write_file(dir / "m.safetensors");
  CHECK_EQ(read(Reader::open(dir / "m.safetensors"), 0), "x");
  ReadOptions lazy;
  lazy.verify = Verify::kLazy;
  CHECK(CHECK_THROWS(Error, Reader::open(dir / "m.safetensors", lazy)).code() == ErrorCode::kCorrupt);
}

TEST(a_file_that_shrinks_is_an_error_without_a_mapping) {
  const Sample sample;
  const Reader reader = sample.open(false);
  const std::size_t last = reader.table().size() - 1;
  std::filesystem::resize_file(sample.path(), reader.table().begin(last));
  const Error error = CHECK_THROWS(Error, read(reader, last));
  CHECK(error.code() == ErrorCode::kIo);
  CHECK_EQ(error.path(), sample.path().string());
}

RUN_TESTS()
