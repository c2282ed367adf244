// Attempts and runs: which shards belong together, what dead attempts leave, and what shard 0 never takes for a part of
// its own save.

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "check.h"
#include "checkpoint/save/protocol/save_history.h"
#include "faulty_file_ops.h"
#include "saver_steps.h"

using namespace weightstore;
using namespace saver_steps;
using test_files::read_file;
using test_files::TempDir;
using test_files::write_file;

namespace {

// Notes the directories that are synced.
class SyncedDirectories final : public io::FileOps {
 public:
  int fsync(int fd) override {
    const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd));
    if (std::filesystem::is_directory(path)) {
      const std::lock_guard lock(mutex_);
      paths_.insert(path);
    }
    return FileOps::fsync(fd);
  }
  bool has(const std::filesystem::path& path) const { return paths_.contains(path); }

 private:
  std::mutex mutex_;
  std::set<std::filesystem::path> paths_;
};

// A run that dies in a save: shard 1 has given its part, or has failed, and then shard 0 dies.
void save_in_a_run_that_dies(const std::filesystem::path& path, const TestOptions& options, bool fails) {
  CHECK_EQ(in_child([&] {
             AtStep ops("data written", [&] {
               TestOptions other = options;
               faulty::FaultyFileOps full({1, faulty::Call::kFallocate, ENOSPC, true});
               if (fails) other.file_ops = &full;
               try {
                 save_value(path, other, 1, 1);
               } catch (const Error&) {
               }
               ::_exit(42);
             });
             TestOptions first = options;
             first.file_ops = &ops;
             save_value(path, first, 0, 1);
           }),
           42);
}

}  // namespace

TEST(a_dead_attempts_record_is_never_consumed) {
  const TempDir dir;
  TestOptions options = options_of(CheckpointLayout::kPlain);
  options.attempt = "step-1";
  options.run = "r";
  save_one(dir.path(), options, "dead", 1, 2);  // shard 0 of step-1 never comes
  const std::vector<std::string> dead = names_in(dir.path());
  CHECK(dead.size() >= 2);
  options.attempt = "step-2";
  options.timeout = std::chrono::milliseconds(100);
  const Error error = CHECK_THROWS(Error, save_one(dir.path(), options, "new", 0, 2));
  CHECK_EQ(error.os_errno(), ETIMEDOUT);
  CHECK(std::string(error.what()).find("1 of 2 shards") != std::string::npos);
  CHECK(std::string(error.what()).find("shard 1: no record") != std::string::npos);
  CHECK_EQ(loaded(dir.path()), "");
  CHECK_EQ(names_in(dir.path()), std::vector<std::string>());
}

TEST(a_part_of_an_earlier_run_is_not_taken_for_one_of_this) {
  for (const bool failed : {false, true}) {
    const TempDir dir;
    TestOptions options = options_of(CheckpointLayout::kPlain);
    options.attempt = "step-7";
    save_in_a_run_that_dies(dir.path(), options, failed);
    CHECK(std::filesystem::exists(dir / ".weightstore-save.step-7-s00001.json"));
    std::jthread other;
    AtStep ops("record written", [&] {
      other = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // shard 0 has time to go wrong
        save_value(dir.path(), options, 1, 2);
      });
    });
    TestOptions first = options;
    first.file_ops = &ops;
    save_value(dir.path(), first, 0, 2);
    CHECK_EQ(saved_values(dir.path()), (Rows{{0, {2}}, {40000, {2}}}));
    CHECK(only_a_checkpoint(dir.path()));
  }
}

TEST(a_part_of_an_earlier_run_is_named_when_no_other_comes) {
  const TempDir dir;
  TestOptions options = options_of(CheckpointLayout::kPlain);
  options.attempt = "a";
  save_in_a_run_that_dies(dir.path(), options, false);
  options.timeout = std::chrono::milliseconds(100);
  CHECK(has(error_of([&] { save_value(dir.path(), options, 0, 1); }),
            "shard 1: its record is of another run or of an earlier try"));
}

TEST(a_given_run_says_which_parts_belong_together) {
  const TempDir dir;
  TestOptions options = options_of(CheckpointLayout::kPlain);
  options.attempt = "a";
  options.timeout = std::chrono::milliseconds(100);
  options.run = "monday";
  save_value(dir.path(), options, 1, 1);
  for (const char* other : {"", "tuesday"}) {
    options.run = other;
    const Error error = CHECK_THROWS(Error, save_value(dir.path(), options, 0, 1));
    CHECK(std::string(error.what()).find("('run monday')") != std::string::npos);
  }
  options.run = "monday";
  save_value(dir.path(), options, 0, 1);
  CHECK_EQ(saved_values(dir.path()), (Rows{{0, {1}}, {40000, {1}}}));
}

TEST(a_shard_that_waits_follows_no_other_run) {
  const TempDir dir;
  TestOptions left_over = options_of(CheckpointLayout::kPlain);
  left_over.run = "monday";
  std::jthread waiting([&] {
    left_over.timeout = std::chrono::milliseconds(500);
    const Error error = CHECK_THROWS(Error, save_value(dir.path(), left_over, 1, 1));
    CHECK(std::string(error.what()).find("shard 0 did not begin") != std::string::npos);
  });
  TestOptions options = options_of(CheckpointLayout::kPlain);
  options.run = "tuesday";
  std::jthread first([&] { save_value(dir.path(), options, 0, 2); });
  waiting.join();
  save_value(dir.path(), options, 1, 2);
  first.join();
  CHECK_EQ(saved_values(dir.path()), (Rows{{0, {2}}, {40000, {2}}}));
}

TEST(a_forked_child_remembers_nothing_of_its_parents_saves) {
  using checkpoint::SaveHistory;
  const SaveHistory::Series series{"/somewhere", "", 1, 2};
  SaveHistory& parent = SaveHistory::current();
  parent.begin(series);
  parent.set_leader(series, "leader");
  CHECK_EQ(in_child([&] {
             SaveHistory& child = SaveHistory::current();
             const SaveHistory::Past past = child.begin(series);
             const bool anew = past.saves == 0 && past.missed == 0 && past.leader.empty();
             ::_exit(anew && child.process_id() != parent.process_id() ? 0 : 1);
           }),
           0);
  CHECK_EQ(parent.begin(series).saves, std::uint64_t{1});
}

TEST(a_record_whose_files_are_gone_or_cut_does_not_count) {
  for (const bool gone : {true, false}) {
    const TempDir dir;
    TestOptions options = options_of(CheckpointLayout::kPlain);
    options.attempt = "a";
    options.run = "r";
    options.timeout = std::chrono::milliseconds(100);
    save_one(dir.path(), options, "part", 1, 2);
    for (const std::string& name : names_in(dir.path())) {
      if (!name.starts_with("model-")) continue;
      if (gone) {
        std::filesystem::remove(dir / name);
      } else {
        std::filesystem::resize_file(dir / name, std::filesystem::file_size(dir / name) - 1);
      }
    }
    const Error error = CHECK_THROWS(Error, save_one(dir.path(), options, "new", 0, 2));
    CHECK(std::string(error.what()).find("shard 1: ") != std::string::npos);
    CHECK(std::string(error.what()).find("model-a-s00001-f00000") != std::string::npos);
    CHECK_EQ(loaded(dir.path()), "");
  }
}

TEST(the_same_attempt_again_overwrites_nothing_before_it_is_whole) {
  const TempDir dir;
  TestOptions options = options_of(CheckpointLayout::kPlain);
  options.attempt = "step-7";
  save_one(dir.path(), options, "old");
  DyingFileOps ops("records merged", 1);
  options.file_ops = &ops;
  CHECK_EQ(in_child([&] { save_one(dir.path(), options, "new"); }), 42);
  CHECK_EQ(loaded(dir.path()), "old");
  options.file_ops = nullptr;
  save_one(dir.path(), options, "newer");
  CHECK_EQ(loaded(dir.path()), "newer");
  CHECK_EQ(names_in(dir.path()).size(), std::size_t{2});
}

TEST(a_token_of_a_dead_shard_0_is_not_followed) {
  const TempDir dir;
  TestOptions options = options_of(CheckpointLayout::kPlain);
  DyingFileOps ops("record written", 1);
  options.file_ops = &ops;
  CHECK_EQ(in_child([&] { save_one(dir.path(), options, "dead", 0, 2); }), 42);
  options.file_ops = nullptr;
  options.timeout = std::chrono::milliseconds(100);
  const Error error = CHECK_THROWS(Error, save_one(dir.path(), options, "new", 1, 2));
  CHECK(std::string(error.what()).find("shard 0 did not begin") != std::string::npos);
}

TEST(what_older_versions_left_is_no_obstacle) {
  for (const char* attempt : {"a", ""}) {
    const TempDir dir;
    write_file(dir / ".weightstore-save.lock", "");
    write_file(dir / ".weightstore-save.token", "a\n");
    write_file(dir / ".weightstore-save.a-s00001.json",
               R"({"version":1,"attempt":"a","run":"","written_ms":1,"shard":1,"shard_num":2,"parallel":1,)"
               R"("layout":"plain","files":[],"error":""})");
    TestOptions options = options_of(CheckpointLayout::kPlain);
    options.attempt = attempt;
    std::jthread other([&] { save_value(dir.path(), options, 1, 1); });
    save_value(dir.path(), options, 0, 1);
    other.join();
    CHECK_EQ(saved_values(dir.path()), (Rows{{0, {1}}, {40000, {1}}}));
    CHECK(only_a_checkpoint(dir.path()));
  }
}

TEST(a_crash_then_the_same_attempt) {
  for (const char* step : {"data written", "record written", "records merged", "journal written", "data renamed",
                           "before index", "index written", "before swap", "swapped", "cleaned"}) {
    const TempDir dir;
    const std::filesystem::path path = dir / "ckpt";
    TestOptions options = options_of(CheckpointLayout::kRecis, true);
    options.attempt = "step-6";
    save_one(path, options, "old");
    write_file(path / "extra.pt", "somebody else's");
    options.attempt = "step-7";
    DyingFileOps ops(step, 1);
    options.file_ops = &ops;
    CHECK_EQ(in_child([&] { save_one(path, options, "new"); }), 42);
    options.file_ops = nullptr;
    save_one(path, options, "newer");
    CHECK_EQ(loaded(path), "newer");
    CHECK(only_a_checkpoint(path));
    CHECK_EQ(read_file(path / "extra.pt"), "somebody else's");
  }
}

TEST(an_attempt_may_be_called_like_a_file_of_the_protocol) {
  for (const char* attempt : {"token", "token.1", "token5", "lock", "journal", "a-s00001", "a.json", "x-f00000"}) {
    for (const bool plain : {true, false}) {
      const TempDir dir;
      TestOptions options = options_of(plain ? CheckpointLayout::kPlain : CheckpointLayout::kRecis, !plain);
      options.timeout = std::chrono::milliseconds(200);
      options.attempt = attempt;
      options.run = "r";
      save_value(dir / "ckpt", options, 1, 1);
      save_value(dir / "ckpt", options, 0, 1);
      CHECK_EQ(saved_values(dir / "ckpt"), (Rows{{0, {1}}, {40000, {1}}}));
      CHECK(only_a_checkpoint(dir / "ckpt"));
    }
  }
}

TEST(a_record_under_another_shards_name_does_not_count) {
  const TempDir dir;
  TestOptions options = options_of(CheckpointLayout::kPlain);
  options.attempt = "a";
  options.run = "r";
  options.timeout = std::chrono::milliseconds(100);
  save_one(dir.path(), options, "part", 1, 3);
  std::filesystem::copy_file(dir / ".weightstore-save.a-s00001.json", dir / ".weightstore-save.a-s00002.json");
  const Error error = CHECK_THROWS(Error, save_one(dir.path(), options, "new", 0, 3));
  CHECK(std::string(error.what()).find("shard 2: its record is of another save") != std::string::npos);
}

TEST(a_new_directory_is_synced_into_the_one_above) {
  const TempDir dir;
  SyncedDirectories ops;
  TestOptions options = options_of(CheckpointLayout::kPlain);
  options.file_ops = &ops;
  save_one(dir / "runs/ckpt", options, "new");
  CHECK(ops.has(dir.path()) && ops.has(dir / "runs") && ops.has(dir / "runs/ckpt"));
}
