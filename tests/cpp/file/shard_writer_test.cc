// Sets of shards written, replaced and read as one.

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "shard_models.h"
#include "test_files.h"
#include "weightstore/checksum.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

using namespace weightstore;
using shard_models::files_in;
using shard_models::kIndex;
using shard_models::Model;
using test_files::as_bytes;
using test_files::TempDir;

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

TEST(a_set_that_replaces_another_has_names_with_an_id) {
  const TempDir dir;
  Model(6, 100, 1).writer.write_shards(dir / kIndex, 100);
  CHECK_EQ(files_in(dir).size(), 7u);
  const Model small(2, 100, 50);
  const auto names = small.writer.write_shards(dir / kIndex, 100);
  CHECK_EQ(names.size(), 2u);
  const std::string id = names[0].substr(6, 8);
  CHECK(id.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK((names == std::vector<std::string>{"model-" + id + "-00001-of-00002.safetensors",
                                           "model-" + id + "-00002-of-00002.safetensors"}));
  CHECK((files_in(dir) == std::vector<std::string>{names[0], names[1], kIndex}));
  small.check(Reader::open(dir / kIndex));
  // And another id each time.
  const Model other(2, 100, 70);
  const auto again = other.writer.write_shards(dir / kIndex, 100);
  CHECK((files_in(dir) == std::vector<std::string>{again[0], again[1], kIndex}));
  CHECK(again[0] != names[0]);
  other.check(Reader::open(dir / kIndex));
}

TEST(a_reader_of_the_old_set_keeps_it) {
  const TempDir dir;
  const Model old(3, 100, 1);
  old.writer.write_shards(dir / kIndex, 100);
  const Reader reader = Reader::open(dir / kIndex);
  Model(3, 100, 9).writer.write_shards(dir / kIndex, 100);
  old.check(reader);
}

TEST(a_set_is_opened_while_it_is_replaced) {
  const TempDir dir;
  WriteOptions quick;
  quick.durable = false;
  const Model model(8, 10, 1);
  model.writer.write_shards(dir / kIndex, 10, quick);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    while (!stop) model.writer.write_shards(dir / kIndex, 10, quick);
  });
  for (int i = 0; i < 500; ++i) {
    try {
      model.check(Reader::open(dir / kIndex));
    } catch (...) {
      stop = true;
      writer.join();
      throw;
    }
  }
  stop = true;
  writer.join();
}

TEST(stray_files_under_usual_names_stay) {
  const TempDir dir;
  const std::string stray = "model-00002-of-00003.safetensors";
  test_files::write_file(dir / stray, "theirs");
  const Model model(3, 100, 1);
  WriteOptions keep;
  keep.overwrite = false;
  const Error error = CHECK_THROWS(Error, model.writer.write_shards(dir / kIndex, 100, keep));
  CHECK(error.code() == ErrorCode::kConflict);
  CHECK_EQ(error.path(), (dir / stray).string());
  CHECK((files_in(dir) == std::vector<std::string>{stray}));
  const auto names = model.writer.write_shards(dir / kIndex, 100);
  CHECK_EQ(names[0].size(), std::string("model-12345678-00001-of-00003.safetensors").size());
  CHECK_EQ(files_in(dir).size(), 5u);
  CHECK_EQ(test_files::read_file(dir / stray), "theirs");
  model.check(Reader::open(dir / kIndex));
  // Nor does a later save remove it.
  Model(3, 100, 2).writer.write_shards(dir / kIndex, 100);
  CHECK_EQ(files_in(dir).size(), 5u);
  CHECK_EQ(test_files::read_file(dir / stray), "theirs");
}

TEST(new_shards_have_the_mode_of_the_old_ones) {
  const TempDir dir;
  for (const std::string& name : Model(3, 100, 1).writer.write_shards(dir / kIndex, 100)) {
    std::filesystem::permissions(dir / name, std::filesystem::perms(0600));
  }
  for (const std::string& name : Model(5, 100, 2).writer.write_shards(dir / kIndex, 100)) {
    CHECK(std::filesystem::status(dir / name).permissions() == std::filesystem::perms(0600));
  }
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
  // Names that look like ours, but that the index does not name.
  const std::vector<std::string> others{"model-00001-of-00009.safetensors", "model-1a2b3c4d-00001-of-00003.safetensors",
                                        "model.safetensors"};
  for (const std::string& name : others) test_files::write_file(dir / name, "theirs");
  const auto names = Model(1, 100, 9).writer.write_shards(dir / kIndex, 100);
  std::vector<std::string> expected{others[0], others[1], others[2], names[0], kIndex, "shared.safetensors"};
  std::sort(expected.begin(), expected.end());
  CHECK(files_in(dir) == expected);
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
