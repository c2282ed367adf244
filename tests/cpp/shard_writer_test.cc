// Sets of shards written, replaced and read as one.

#include <algorithm>
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

constexpr const char* kIndex = "model.safetensors.index.json";

std::vector<std::string> files_in(const TempDir& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Tensors t0, t1, ... of `size` bytes each, whose bytes depend on `seed`.
struct Model {
  Model(std::size_t count, std::size_t size, std::uint32_t seed) {
    for (std::size_t i = 0; i < count; ++i)
      data.push_back(test_files::pattern(size, seed + static_cast<std::uint32_t>(i)));
    for (std::size_t i = 0; i < count; ++i) writer.add("t" + std::to_string(i), DType::kU8, {size}, as_bytes(data[i]));
  }

  void check(const Reader& reader) const {
    CHECK_EQ(reader.table().size(), data.size());
    for (std::size_t i = 0; i < data.size(); ++i) {
      const std::size_t tensor = reader.table().at("t" + std::to_string(i));
      std::string out(data[i].size(), '\0');
      reader.read(tensor, {reinterpret_cast<std::byte*>(out.data()), out.size()});
      CHECK(out == data[i]);
    }
  }

  std::vector<std::string> data;
  Writer writer;
};

}  // namespace

TEST(a_set_is_written_and_read_as_one) {
  const TempDir dir;
  Model model(5, 100, 1);
  model.writer.set_metadata("format", "pt");
  model.writer.set_metadata("note", "n");
  const auto names = model.writer.write_shards(dir / kIndex, 200);
  CHECK((names == std::vector<std::string>{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                           "model-00003-of-00003.safetensors"}));
  CHECK_EQ(files_in(dir).size(), 4u);
  for (const bool map : {true, false}) {
    ReadOptions options;
    options.map = map;
    const Reader reader = Reader::open(dir / kIndex, options);
    model.check(reader);
    CHECK(reader.table().metadata().find("total_size") == "500");
    CHECK(reader.table().metadata().find("note") == "n");
  }
  // Loaders look for the format in each shard.
  const Reader shard = Reader::open(dir / names[1]);
  CHECK(shard.table().metadata().find("format") == "pt");
  CHECK_EQ(shard.table().size(), 2u);
}

TEST(a_tensor_above_the_limit_has_its_own_shard) {
  const TempDir dir;
  const std::string data = test_files::pattern(50);
  Writer writer;
  writer.add("a", DType::kU8, {10}, as_bytes(data).first(10));
  writer.add("big", DType::kU8, {50}, as_bytes(data));
  writer.add("b", DType::kU8, {10}, as_bytes(data).first(10));
  writer.add("empty", DType::kU8, {0}, {});
  CHECK_EQ(writer.write_shards(dir / kIndex, 20).size(), 3u);
  CHECK_EQ(Reader::open(dir / "model-00002-of-00003.safetensors").table().name(0), "big");
  CHECK_EQ(writer.write_shards(dir / kIndex, 0).size(), 4u);
  CHECK_EQ(writer.write_shards(dir / kIndex, UINT64_MAX).size(), 1u);
}

TEST(a_smaller_set_replaces_a_larger_one) {
  const TempDir dir;
  Model(6, 100, 1).writer.write_shards(dir / kIndex, 100);
  CHECK_EQ(files_in(dir).size(), 7u);
  const Model small(2, 100, 50);
  small.writer.write_shards(dir / kIndex, 100);
  CHECK((files_in(dir) ==
         std::vector<std::string>{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", kIndex}));
  small.check(Reader::open(dir / kIndex));
  // The same names, other contents.
  const Model other(2, 100, 70);
  other.writer.write_shards(dir / kIndex, 100);
  CHECK_EQ(files_in(dir).size(), 3u);
  other.check(Reader::open(dir / kIndex));
}

TEST(a_failure_before_the_commit_leaves_the_old_set) {
  const TempDir dir;
  const Model old(3, 100, 1);
  old.writer.write_shards(dir / kIndex, 100);
  const auto before = files_in(dir);

  Model failing(3, 100, 9);
  failing.writer.add(
      {"late",
       DType::kU8,
       {5},
       deferred_bytes(5, [](std::uint64_t, MutableBytes) { throw Error(ErrorCode::kInvalidArgument, "no bytes"); }),
       std::nullopt,
       nullptr});
  const Error error = CHECK_THROWS(Error, failing.writer.write_shards(dir / kIndex, 100));
  CHECK_EQ(error.tensor(), "late");
  CHECK(files_in(dir) == before);
  old.check(Reader::open(dir / kIndex));

  WriteOptions cancel;
  cancel.progress = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
  const Error cancelled = CHECK_THROWS(Error, Model(3, 100, 9).writer.write_shards(dir / kIndex, 100, cancel));
  CHECK(cancelled.code() == ErrorCode::kCancelled);
  Writer bad;
  bad.add("__metadata__", DType::kU8, {0}, {});
  CHECK_THROWS(Error, bad.write_shards(dir / kIndex, 100));
  CHECK(files_in(dir) == before);
  old.check(Reader::open(dir / kIndex));
}

TEST(without_overwriting_an_index_that_exists_or_appears_stays) {
  const TempDir dir;
  WriteOptions keep;
  keep.overwrite = false;
  const Model model(2, 100, 1);
  test_files::write_file(dir / kIndex, "theirs");
  CHECK(CHECK_THROWS(Error, model.writer.write_shards(dir / kIndex, 100, keep)).code() == ErrorCode::kConflict);
  CHECK_EQ(files_in(dir).size(), 1u);
  std::filesystem::remove(dir / kIndex);
  keep.progress = [&](std::uint64_t, std::uint64_t, std::string_view) {
    test_files::write_file(dir / kIndex, "theirs");
    return true;
  };
  CHECK(CHECK_THROWS(Error, model.writer.write_shards(dir / kIndex, 100, keep)).code() == ErrorCode::kConflict);
  CHECK_EQ(test_files::read_file(dir / kIndex), "theirs");
  CHECK_EQ(files_in(dir).size(), 1u);  // shards that nothing refers to were removed again
}

TEST(only_shards_under_names_of_ours_are_removed_with_an_old_set) {
  const TempDir dir;
  const Model old(3, 100, 1);
  old.writer.write_shards(dir / kIndex, 100);
  // An index that somebody wrote by hand and that refers to a file with a life of its own.
  std::filesystem::rename(dir / "model-00003-of-00003.safetensors", dir / "shared.safetensors");
  std::string index = test_files::read_file(dir / kIndex);
  index.replace(index.find("model-00003-of-00003"), 20, "shared");
  test_files::write_file(dir / kIndex, index);
  old.check(Reader::open(dir / kIndex));
  Model(1, 100, 9).writer.write_shards(dir / kIndex, 100);
  CHECK((files_in(dir) == std::vector<std::string>{"model-00001-of-00001.safetensors", kIndex, "shared.safetensors"}));
}

TEST(an_index_that_is_a_link_stays_one) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "elsewhere");
  test_files::write_file(dir / "elsewhere/index", "{}");
  std::filesystem::create_symlink("elsewhere/index", dir / kIndex);
  const Model model(2, 100, 1);
  model.writer.write_shards(dir / kIndex, 100);
  CHECK(std::filesystem::is_symlink(dir / kIndex));
  model.check(Reader::open(dir / kIndex));
}

TEST(the_name_of_an_index_is_checked) {
  const TempDir dir;
  const Model model(1, 1, 1);
  for (const char* name : {"model.safetensors", "index.json", ".safetensors.index.json", "model.index.json"}) {
    CHECK(CHECK_THROWS(Error, model.writer.write_shards(dir / name, 100)).code() == ErrorCode::kInvalidArgument);
  }
  CHECK(files_in(dir).empty());
  CHECK_EQ(model.writer.write_shards(dir / "x.fp16.safetensors.index.json", 100)[0],
           "x.fp16-00001-of-00001.safetensors");
}

TEST(progress_is_one_ascending_scale_over_all_shards) {
  const TempDir dir;
  WriteOptions options;
  std::vector<std::uint64_t> reports;
  options.progress = [&](std::uint64_t done, std::uint64_t total, std::string_view) {
    CHECK_EQ(total, 400u);
    CHECK(reports.empty() || reports.back() <= done);
    reports.push_back(done);
    return true;
  };
  Model(4, 100, 1).writer.write_shards(dir / kIndex, 100, options);
  CHECK_EQ(reports.back(), 400u);
  // All is done at the end, and not before.
  CHECK_EQ(std::count(reports.begin(), reports.end(), 400u), 1);
}

TEST(checksums_cover_a_set_and_replace_those_it_was_made_of) {
  const TempDir dir;
  Model model(4, 100, 1);
  model.writer.set_metadata(kChecksumKey, R"({"t0":"00000000"})");
  WriteOptions options;
  options.checksums = true;
  model.writer.write_shards(dir / kIndex, 200, options);
  ReadOptions full;
  full.verify = Verify::kFull;
  const Reader reader = Reader::open(dir / kIndex, full);
  CHECK_EQ(reader.verify_all(), 4u);
  model.check(reader);

  const auto shard = dir / "model-00002-of-00002.safetensors";
  std::string bytes = test_files::read_file(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  test_files::write_file(shard, bytes);
  const Error error = CHECK_THROWS(Error, Reader::open(dir / kIndex, full));
  CHECK(error.code() == ErrorCode::kCorrupt);
  CHECK_EQ(error.tensor(), "t3");
  CHECK_EQ(error.path(), shard.string());
}

TEST(a_checksum_speaks_for_its_own_shard_only) {
  const TempDir dir;
  WriteOptions options;
  options.checksums = true;
  Writer one;
  one.add("a", DType::kU8, {1}, as_bytes("a"));
  one.add("b", DType::kU8, {1}, as_bytes("b"));
  one.write_file(dir / "both.safetensors", options);
  const std::string entry(*Reader::open(dir / "both.safetensors").table().metadata().find(kChecksumKey));
  // A tool split the file and kept the metadata on both parts.
  for (const char* name : {"a", "b"}) {
    Writer part;
    part.add(name, DType::kU8, {1}, as_bytes(std::string_view(name)));
    part.set_metadata(kChecksumKey, entry);
    part.write_file(dir / (std::string(name) + ".safetensors"));
  }
  test_files::write_file(dir / kIndex, R"({"weight_map":{"a":"a.safetensors","b":"b.safetensors"}})");
  ReadOptions full;
  full.verify = Verify::kFull;
  CHECK_EQ(Reader::open(dir / kIndex, full).verify_all(), 2u);
}

RUN_TESTS()
