// Copies between files: what was damaged is refused when the source is verified, and its checksums follow the tensors.

#include "weightstore/convert.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "check.h"
#include "test_files.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

using namespace weightstore;
using test_files::as_bytes;
using test_files::TempDir;

namespace {

constexpr std::size_t kSize = 5'000'000;  // several blocks of a writer

// Two tensors with checksums; `b` is damaged when asked for.
void write_source(const std::filesystem::path& path, bool damaged) {
  const std::string a = test_files::pattern(100, 1);
  const std::string b = test_files::pattern(kSize, 2);
  Writer writer;
  writer.add("a", DType::kU8, {a.size()}, as_bytes(a));
  writer.add("b", DType::kU8, {b.size()}, as_bytes(b));
  WriteOptions options;
  options.checksums = true;
  options.durable = false;
  writer.write_file(path, options);
  if (!damaged) return;
  std::string bytes = test_files::read_file(path);
  bytes[bytes.find(b) + kSize / 2] ^= 1;
  test_files::write_file(path, bytes);
}

Reader opened(const std::filesystem::path& path, Verify verify) {
  ReadOptions options;
  options.verify = verify;
  return Reader::open(path, options);
}

// Fills parts of this size, in order or from the last to the first.
std::string filled(ByteProducer& bytes, std::size_t part, bool backwards) {
  std::string out(bytes.size(), '\0');
  const std::size_t parts = (out.size() + part - 1) / part;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::size_t begin = (backwards ? parts - 1 - i : i) * part;
    const std::size_t size = std::min(part, out.size() - begin);
    bytes.fill(begin, std::as_writable_bytes(std::span(out)).subspan(begin, size));
  }
  return out;
}

}  // namespace

TEST(a_damaged_tensor_is_not_converted) {
  const TempDir dir;
  for (const char* name : {"source.safetensors", "source.bpk"}) {
    write_source(dir / name, true);
    for (const char* target : {"target.safetensors", "target.bpk"}) {
      for (const bool checksums : {false, true}) {
        WriteOptions options;
        options.checksums = checksums;
        const Error lazy = CHECK_THROWS(Error, convert_file(opened(dir / name, Verify::kLazy), dir / target, options));
        CHECK(lazy.code() == ErrorCode::kCorrupt);
        CHECK_EQ(lazy.tensor(), "b");
        CHECK_EQ(lazy.path(), (dir / name).string());
        CHECK(CHECK_THROWS(Error, convert_file(dir / name, dir / target, options)).code() == ErrorCode::kCorrupt);
        CHECK(!std::filesystem::exists(dir / target));
      }
      // Unverified, the tensor keeps the checksum that it does not have any more.
      convert_file(opened(dir / name, Verify::kOff), dir / target);
      CHECK_EQ(CHECK_THROWS(Error, opened(dir / target, Verify::kFull)).tensor(), "b");
      std::filesystem::remove(dir / target);
    }
  }
}

TEST(a_producer_compares_in_whatever_order_it_is_asked) {
  const TempDir dir;
  write_source(dir / "bad.safetensors", true);
  write_source(dir / "good.safetensors", false);
  for (const bool map : {true, false}) {
    for (const bool backwards : {false, true}) {
      for (const std::size_t part : {std::size_t{1} << 20, kSize}) {
        ReadOptions options;
        options.verify = Verify::kLazy;
        options.map = map;
        const Reader bad = Reader::open(dir / "bad.safetensors", options);
        CHECK(filled(*bad.producer(bad.table().at("a")), 7, backwards) == test_files::pattern(100, 1));
        const auto bytes = bad.producer(bad.table().at("b"));
        CHECK(CHECK_THROWS(Error, filled(*bytes, part, backwards)).code() == ErrorCode::kCorrupt);
        CHECK(CHECK_THROWS(Error, filled(*bytes, part, backwards)).code() == ErrorCode::kCorrupt);

        const Reader good = Reader::open(dir / "good.safetensors", options);
        const auto again = good.producer(good.table().at("b"));
        for (int i = 0; i < 2; ++i) CHECK(filled(*again, part, backwards) == test_files::pattern(kSize, 2));
      }
    }
  }
}

TEST(memory_is_not_handed_out_before_it_was_compared) {
  const TempDir dir;
  write_source(dir / "bad.safetensors", true);
  write_source(dir / "good.safetensors", false);
  const std::string good = test_files::read_file(dir / "good.safetensors");
  const std::string bad = test_files::read_file(dir / "bad.safetensors");
  ReadOptions options;
  options.verify = Verify::kLazy;
  const Reader reader = Reader::from_static(as_bytes(good), options);
  const auto bytes = reader.producer(reader.table().at("b"));
  CHECK(!bytes->resident());
  filled(*bytes, 1 << 20, false);
  CHECK(bytes->resident());
  const Reader damaged = Reader::from_static(as_bytes(bad), options);
  CHECK(
      CHECK_THROWS(Error, plan_conversion(damaged, Format::kBurnpack).contents.write_bytes(Format::kBurnpack)).code() ==
      ErrorCode::kCorrupt);
  // Nothing to compare costs nothing.
  const Reader trusting = Reader::from_static(as_bytes(good));
  CHECK(trusting.producer(trusting.table().at("b"))->resident());
}

TEST(full_verification_tells_its_progress_and_can_be_cancelled) {
  const TempDir dir;
  write_source(dir / "good.safetensors", false);
  ReadOptions options;
  options.verify = Verify::kFull;
  std::uint64_t last = 0;
  options.verify_progress = [&](std::uint64_t done, std::uint64_t, std::string_view) {
    last = done;
    return true;
  };
  const Reader reader = Reader::open(dir / "good.safetensors", options);
  CHECK_EQ(last, std::uint64_t{kSize + 100});
  options.verify_progress = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
  CHECK(CHECK_THROWS(Error, Reader::open(dir / "good.safetensors", options)).code() == ErrorCode::kCancelled);
}

TEST(checksums_of_shards_are_those_of_the_set) {
  const TempDir dir;
  const std::string text = "abcdefgh";
  Writer writer;
  for (std::size_t i = 0; i < text.size(); ++i) {
    writer.add(std::string(1, text[i]), DType::kU8, {1}, as_bytes(std::string_view(text).substr(i, 1)));
  }
  WriteOptions options;
  options.checksums = true;
  CHECK_EQ(writer.write_shards(dir / "m.safetensors.index.json", 3, options).size(), std::size_t{3});
  const Reader set = Reader::open(dir / "m.safetensors.index.json");
  CHECK_EQ(set.recorded_checksums().size(), text.size());
  for (const auto& crc : set.recorded_checksums()) CHECK(crc.has_value());
  convert_file(set, dir / "one.safetensors");
  const Reader one = opened(dir / "one.safetensors", Verify::kFull);
  for (std::size_t i = 0; i < text.size(); ++i) {
    CHECK_EQ(one.recorded_checksums()[one.table().at(text.substr(i, 1))], crc32c(as_bytes(text.substr(i, 1))));
  }
}

RUN_TESTS()
