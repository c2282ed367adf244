// Saves beside and after each other: shards ahead and behind, other hosts, readers, and neighbours.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "check.h"
#include "saver_steps.h"

using namespace weightstore;
using namespace saver_steps;
using test_files::TempDir;
using test_files::write_file;

namespace {

// Calls `body` before the n-th data file is opened. A directory gets the inode number of one that was removed, as soon
// as nobody holds a directory open.
class OvertakenReader final : public io::FileOps {
 public:
  OvertakenReader(int n, std::function<void()> body) : left_(n), body_(std::move(body)) {}
  bool is_overtaken() const { return left_ <= 0; }

  int open(const char* path, int flags, mode_t mode) override {
    if (std::string_view(path).ends_with(".safetensors") && --left_ == 0) body_();
    const int fd = io::FileOps::open(path, flags, mode);
    struct stat status;
    if (fd >= 0 && ::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) directories_.insert(fd);
    return fd;
  }
  int close(int fd) override {
    directories_.erase(fd);
    return io::FileOps::close(fd);
  }
  int stat(const char* path, struct stat* out) override {
    const int result = io::FileOps::stat(path, out);
    if (result == 0 && S_ISDIR(out->st_mode) && directories_.empty()) out->st_ino = 1;
    return result;
  }

 private:
  int left_;
  const std::function<void()> body_;
  std::set<int> directories_;
};

}  // namespace

TEST(a_shard_that_is_ahead_waits_for_its_next_save) {
  const TempDir dir;
  const TestOptions base = options_of(CheckpointLayout::kPlain);
  std::promise<void> first_saved;
  std::jthread other([&] {
    save_value(dir.path(), base, 1, 1);
    first_saved.set_value();
    save_value(dir.path(), base, 1, 2);
  });
  AtStep ops("record written", [&] {
    first_saved.get_future().wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the other has time to go wrong
  });
  TestOptions slow = base;
  slow.file_ops = &ops;
  save_value(dir.path(), slow, 0, 1);
  CHECK_EQ(saved_values(dir.path()), (Rows{{0, {1}}, {40000, {1}}}));
  save_value(dir.path(), base, 0, 2);
  other.join();
  CHECK_EQ(saved_values(dir.path()), (Rows{{0, {2}}, {40000, {2}}}));
}

TEST(shards_save_many_times_without_meeting) {
  const TempDir dir;
  TestOptions options = options_of(CheckpointLayout::kPlain);
  options.durable = false;
  std::jthread other([&] {
    for (int i = 0; i < 20; ++i) save_value(dir.path(), options, 1, static_cast<float>(i));
  });
  for (int i = 0; i < 20; ++i) {
    const auto value = static_cast<float>(i);
    save_value(dir.path(), options, 0, value);
    CHECK_EQ(saved_values(dir.path()), (Rows{{0, {value}}, {40000, {value}}}));
  }
  other.join();
}

TEST(a_late_shard_does_not_join_the_next_save) {
  const TempDir dir;
  TestOptions options = options_of(CheckpointLayout::kPlain);
  TestOptions impatient = options;
  impatient.timeout = std::chrono::milliseconds(50);
  CHECK(has(error_of([&] { save_value(dir.path(), impatient, 0, 1); }), "shard 1: no record"));
  std::jthread late;
  std::string refused;
  AtStep ops("token published",
             [&] { late = std::jthread([&] { refused = error_of([&] { save_value(dir.path(), options, 1, 1); }); }); });
  options.file_ops = &ops;
  // Shard 0 hears at once that its second save cannot succeed.
  CHECK(has(error_of([&] { save_value(dir.path(), options, 0, 2); }), "pass the same `attempt` on all shards"));
  late.join();
  CHECK(has(refused, "pass the same `attempt` on all shards"));
  CHECK_EQ(names_in(dir.path()), std::vector<std::string>());
}

TEST(an_attempt_mends_what_counting_refuses) {
  const TempDir dir;
  TestOptions options = options_of(CheckpointLayout::kPlain);
  options.timeout = std::chrono::milliseconds(50);
  CHECK_THROWS(Error, save_value(dir.path(), options, 0, 1));
  options.timeout = std::chrono::seconds(20);
  options.attempt = "2";
  std::jthread other([&] { save_value(dir.path(), options, 1, 2); });
  save_value(dir.path(), options, 0, 2);
  other.join();
  CHECK_EQ(saved_values(dir.path()), (Rows{{0, {2}}, {40000, {2}}}));
}

TEST(a_shard_ahead_waits_for_shard_0) {
  for (const char* run : {"", "r"}) {
    const TempDir dir;
    TestOptions options = options_of(CheckpointLayout::kPlain);
    options.run = run;
    const auto save = [&](std::int64_t shard, int step) {
      TestOptions own = options;
      own.attempt = std::to_string(step);
      save_value(dir.path(), own, shard, static_cast<float>(step));
    };
    std::jthread ahead([&] {
      save(1, 1);
      save(1, 2);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // shard 1 has time to go wrong
    save(0, 1);
    CHECK_EQ(saved_values(dir.path()), (Rows{{0, {1}}, {40000, {1}}}));
    save(0, 2);
    ahead.join();
    CHECK_EQ(saved_values(dir.path()), (Rows{{0, {2}}, {40000, {2}}}));
  }
}

TEST(a_shard_that_is_ahead_is_not_told_that_it_saved) {
  const TempDir dir;
  TestOptions options = options_of(CheckpointLayout::kPlain);
  options.timeout = std::chrono::milliseconds(100);
  options.attempt = "1";
  CHECK(has(error_of([&] { save_value(dir.path(), options, 1, 1); }), "shard 0 did not begin the save '1'"));
  options.run = "r";
  save_value(dir.path(), options, 1, 1);
  options.attempt = "2";
  CHECK(has(error_of([&] { save_value(dir.path(), options, 1, 2); }), "shard 0 has not ended the save '1'"));
}

TEST(a_pending_save_keeps_other_saves_out) {
  const TempDir dir;
  const Saver first(0, 1, 1, dir.path());
  auto pending = first.begin();
  const Error error = CHECK_THROWS(Error, save_one(dir.path(), options_of(CheckpointLayout::kPlain), "later"));
  CHECK(error.code() == ErrorCode::kConflict);
  first.save({}, std::move(pending));
  save_one(dir.path(), options_of(CheckpointLayout::kPlain), "later");
  CHECK_EQ(loaded(dir.path()), "later");
  CHECK(only_a_checkpoint(dir.path()));
}

// Lustre with -o localflock, NFS with local_lock=flock: each shard, on a host of its own, sees only its own locks.
TEST(shards_on_hosts_that_do_not_see_each_others_locks) {
  class NoLocks final : public io::FileOps {
   public:
    int flock(int, int) override { return 0; }
  };
  for (const char* attempt : {"", "1"}) {
    const TempDir dir;
    NoLocks here;
    NoLocks there;
    TestOptions options = options_of(CheckpointLayout::kPlain);
    options.attempt = attempt;
    options.file_ops = &here;
    std::jthread other([&] {
      TestOptions own = options;
      own.file_ops = &there;
      save_value(dir.path(), own, 1, 1);
    });
    save_value(dir.path(), options, 0, 1);
    other.join();
    CHECK_EQ(saved_values(dir.path()), (Rows{{0, {1}}, {40000, {1}}}));
  }
}

TEST(a_lock_of_another_host_counts_while_it_has_a_heartbeat) {
  // Time passes in pauses only, and with every pause the other host may write.
  class OtherHost final : public io::FileOps {
   public:
    OtherHost(std::filesystem::path path, bool alive) : path_(std::move(path)), alive_(alive) {}
    std::chrono::steady_clock::time_point now() override { return now_; }
    void pause(std::chrono::milliseconds duration) override {
      now_ += duration;
      if (alive_) write_file(path_, "another0000000000000001");
    }

   private:
    const std::filesystem::path path_;
    const bool alive_;
    std::chrono::steady_clock::time_point now_;
  };
  for (const bool alive : {true, false}) {
    const TempDir dir;
    write_file(dir / ".weightstore-save.lock", "another0000000000000000");
    OtherHost ops(dir / ".weightstore-save.lock", alive);
    TestOptions options = options_of(CheckpointLayout::kPlain);
    options.file_ops = &ops;
    if (alive) {
      const Error error = CHECK_THROWS(Error, save_one(dir.path(), options, "new"));
      CHECK(error.code() == ErrorCode::kConflict);
    } else {
      save_one(dir.path(), options, "new");
      CHECK_EQ(loaded(dir.path()), "new");
    }
  }
}

TEST(a_reader_beside_a_saver_always_finds_a_whole_checkpoint) {
  for (const bool plain : {true, false}) {
    const TempDir dir;
    const std::filesystem::path path = dir / "ckpt";
    TestOptions options = options_of(plain ? CheckpointLayout::kPlain : CheckpointLayout::kRecis, !plain);
    options.durable = false;
    save_one(path, options, "0");
    std::atomic<bool> done = false;
    std::jthread other([&] {
      for (int i = 1; i < 60; ++i) save_one(path, options, std::to_string(i));
      done = true;
    });
    while (!done) CHECK(!loaded(path).empty());
    other.join();
    CHECK_EQ(loaded(path), "59");
  }
}

TEST(a_reader_that_two_saves_overtake_finds_a_whole_checkpoint) {
  for (const bool plain : {true, false}) {
    const TempDir dir;
    const std::filesystem::path path = dir / "ckpt";
    TestOptions options = options_of(plain ? CheckpointLayout::kPlain : CheckpointLayout::kRecis, !plain);
    options.durable = false;
    for (int file = 1;; ++file) {
      save_one(path, options, "old");
      OvertakenReader ops(file, [&] {
        save_one(path, options, "mid");
        save_one(path, options, "new");
      });
      const io::FileOpsScope scope(ops);
      const std::string found = loaded(path);
      CHECK_EQ(found, ops.is_overtaken() ? "new" : "old");
      if (!ops.is_overtaken()) break;
    }
  }
}

TEST(directories_whose_names_begin_alike_leave_each_other_alone) {
  const TempDir dir;
  TestOptions options = options_of(CheckpointLayout::kRecis, true);
  options.attempt = "7";
  save_one(dir / "ckpt.v2", options, "old");
  AtStep ops("before swap", [&] { save_one(dir / "ckpt", options_of(CheckpointLayout::kRecis, true), "other"); });
  options.attempt = "8";
  options.file_ops = &ops;
  save_one(dir / "ckpt.v2", options, "new");
  CHECK_EQ(loaded(dir / "ckpt.v2"), "new");
  CHECK_EQ(loaded(dir / "ckpt"), "other");
}
