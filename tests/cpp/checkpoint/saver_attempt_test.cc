// Attempts: who belongs to which, what dead ones leave, and what is never taken for something else.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "check.h"
#include "checkpoint/save/process_memory.h"
#include "faulty_file_ops.h"
#include "saver_crash.h"

using namespace weightstore;
using namespace saver_crash;
using test_files::read_file;
using test_files::TempDir;
using test_files::write_file;

namespace {

// Calls `body` whenever a step of this name is reached.
class AtStep final : public io::FileOps {
 public:
  AtStep(std::string step, std::function<void()> body) : step_(std::move(step)), body_(std::move(body)) {}
  void reached(const char* step) override {
    if (step_ == step) body_();
  }

 private:
  const std::string step_;
  const std::function<void()> body_;
};

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

// The rows of this table have this value in all places.
void save_value(const std::filesystem::path& path, const SaveOptions& options, std::int64_t shard, float value) {
  Saver saver(shard, 2, 1, path);
  saver.configure(options);
  const auto user = table("user", 1, static_cast<std::uint64_t>(shard), 2);
  user->insert(std::vector<std::int64_t>{shard * 40000}, table_values::bytes_of(std::vector<float>{value}));
  saver.save(saver.make_write_blocks(Tables{user}, {}));
}

// A run that dies in a save: shard 1 has given its part, or has failed, and then shard 0 dies.
void save_in_a_run_that_dies(const std::filesystem::path& path, const SaveOptions& options, bool fails) {
  CHECK_EQ(in_child([&] {
             AtStep ops("data written", [&] {
               SaveOptions other = options;
               faulty::FaultyFileOps full({1, faulty::Call::kFallocate, ENOSPC, true});
               if (fails) other.file_ops = &full;
               try {
                 save_value(path, other, 1, 1);
               } catch (const Error&) {
               }
               ::_exit(42);
             });
             SaveOptions first = options;
             first.file_ops = &ops;
             save_value(path, first, 0, 1);
           }),
           42);
}

std::string error_of(const std::function<void()>& body) {
  const Error error = CHECK_THROWS(Error, body());
  return error.what();
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Rows saved_values(const std::filesystem::path& path) {
  const auto user = table("user", 1, 0, 1);
  const Loader loader(path, 1, {user}, {});
  loader.load(loader.default_load_info());
  return rows_of(*user, 1);
}

}  // namespace

TEST(a_dead_attempts_record_is_never_consumed) {
  const TempDir dir;
  SaveOptions options = options_of(CheckpointLayout::kPlain);
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
    SaveOptions options = options_of(CheckpointLayout::kPlain);
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
    SaveOptions first = options;
    first.file_ops = &ops;
    save_value(dir.path(), first, 0, 2);
    CHECK_EQ(saved_values(dir.path()), (Rows{{0, {2}}, {40000, {2}}}));
    CHECK(only_a_checkpoint(dir.path()));
  }
}

TEST(a_part_of_an_earlier_run_is_named_when_no_other_comes) {
  const TempDir dir;
  SaveOptions options = options_of(CheckpointLayout::kPlain);
  options.attempt = "a";
  save_in_a_run_that_dies(dir.path(), options, false);
  options.timeout = std::chrono::milliseconds(100);
  CHECK(has(error_of([&] { save_value(dir.path(), options, 0, 1); }),
            "shard 1: its record is of another run or of an earlier try"));
}

TEST(a_given_run_says_which_parts_belong_together) {
  const TempDir dir;
  SaveOptions options = options_of(CheckpointLayout::kPlain);
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
  SaveOptions left_over = options_of(CheckpointLayout::kPlain);
  left_over.run = "monday";
  std::jthread waiting([&] {
    left_over.timeout = std::chrono::milliseconds(500);
    const Error error = CHECK_THROWS(Error, save_value(dir.path(), left_over, 1, 1));
    CHECK(std::string(error.what()).find("shard 0 did not begin") != std::string::npos);
  });
  SaveOptions options = options_of(CheckpointLayout::kPlain);
  options.run = "tuesday";
  std::jthread first([&] { save_value(dir.path(), options, 0, 2); });
  waiting.join();
  save_value(dir.path(), options, 1, 2);
  first.join();
  CHECK_EQ(saved_values(dir.path()), (Rows{{0, {2}}, {40000, {2}}}));
}

TEST(a_forked_child_remembers_nothing_of_its_parents_saves) {
  using checkpoint::ProcessMemory;
  const ProcessMemory::Place place{"/somewhere", "", 1, 2};
  ProcessMemory& parent = ProcessMemory::current();
  parent.begin(place);
  parent.set_leader(place, "leader");
  CHECK_EQ(in_child([&] {
             ProcessMemory& child = ProcessMemory::current();
             const ProcessMemory::Before before = child.begin(place);
             const bool anew = before.saves == 0 && before.missed == 0 && before.leader.empty();
             ::_exit(anew && child.id() != parent.id() ? 0 : 1);
           }),
           0);
  CHECK_EQ(parent.begin(place).saves, std::uint64_t{1});
}

TEST(a_record_whose_files_are_gone_or_cut_does_not_count) {
  for (const bool gone : {true, false}) {
    const TempDir dir;
    SaveOptions options = options_of(CheckpointLayout::kPlain);
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
  SaveOptions options = options_of(CheckpointLayout::kPlain);
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
  SaveOptions options = options_of(CheckpointLayout::kPlain);
  DyingFileOps ops("record written", 1);
  options.file_ops = &ops;
  CHECK_EQ(in_child([&] { save_one(dir.path(), options, "dead", 0, 2); }), 42);
  options.file_ops = nullptr;
  options.timeout = std::chrono::milliseconds(100);
  const Error error = CHECK_THROWS(Error, save_one(dir.path(), options, "new", 1, 2));
  CHECK(std::string(error.what()).find("shard 0 did not begin") != std::string::npos);
}

TEST(a_shard_that_fails_tells_shard_0_why) {
  const TempDir dir;
  SaveOptions options = options_of(CheckpointLayout::kPlain);
  options.attempt = "a";
  options.run = "r";
  faulty::FaultyFileOps ops({1, faulty::Call::kFallocate, ENOSPC, true});
  options.file_ops = &ops;
  CHECK_THROWS(Error, save_one(dir.path(), options, "part", 1, 2));
  options.file_ops = nullptr;
  const Error error = CHECK_THROWS(Error, save_one(dir.path(), options, "part", 0, 2));
  CHECK(std::string(error.what()).find("shard 1 failed: ") != std::string::npos);
}

TEST(a_shard_that_fails_before_it_writes_tells_shard_0_too) {
  for (const bool plain : {true, false}) {
    const TempDir dir;
    SaveOptions options = options_of(plain ? CheckpointLayout::kPlain : CheckpointLayout::kRecis, !plain);
    options.attempt = "a";
    options.run = "r";
    Saver saver(1, 2, 2, dir / "ckpt");
    saver.configure(options);
    const auto user = table("user", 2, 1, 2);
    CHECK_THROWS(Error, saver.save(saver.make_write_blocks(Tables{user, user}, {})));
    const Error error = CHECK_THROWS(Error, save_one(dir / "ckpt", options, "part", 0, 2));
    CHECK(std::string(error.what()).find("shard 1 failed: ") != std::string::npos);
    saver.give_up("no memory");
    const Error again = CHECK_THROWS(Error, save_one(dir / "ckpt", options, "part", 0, 2));
    CHECK(std::string(again.what()).find("shard 1 failed: no memory") != std::string::npos);
    saver.save(saver.make_write_blocks(Tables{user}, {}));
    save_one(dir / "ckpt", options, "part", 0, 2);
    CHECK_EQ(loaded(dir / "ckpt"), "part");
    CHECK(only_a_checkpoint(dir / "ckpt"));
  }
}

TEST(a_shard_that_is_cancelled_before_shard_0_begins_tells_it) {
  for (const char* attempt : {"", "1"}) {
    const TempDir dir;
    SaveOptions options = options_of(CheckpointLayout::kPlain);
    options.attempt = attempt;
    std::promise<void> cancelled;
    std::jthread other([&] {
      SaveOptions own = options;
      bool told = false;
      own.progress = [&](std::uint64_t, std::uint64_t, std::string_view) {
        if (!std::exchange(told, true)) cancelled.set_value();
        return false;
      };
      const Error error = CHECK_THROWS(Error, save_value(dir.path(), own, 1, 1));
      CHECK(error.code() == ErrorCode::kCancelled);
    });
    cancelled.get_future().wait();
    CHECK(has(error_of([&] { save_value(dir.path(), options, 0, 1); }), "shard 1 failed: saving was cancelled"));
    other.join();
    CHECK_EQ(names_in(dir.path()), std::vector<std::string>());
  }
}

TEST(a_shard_that_is_refused_tells_shard_0_though_its_options_differ) {
  const SaveOptions leads = options_of(CheckpointLayout::kRecis, true);
  for (const CheckpointLayout layout : {CheckpointLayout::kRecis, CheckpointLayout::kPlain}) {
    for (const bool named : {true, false}) {
      const TempDir dir;
      const std::filesystem::path path = dir / "ckpt";
      save_one(path, leads, "old");
      SaveOptions first = leads;
      SaveOptions other = options_of(layout);
      if (named) {
        first.attempt = other.attempt = "a";
        first.run = other.run = "r";
      }
      const auto be_refused = [&] {
        const Error error = CHECK_THROWS(Error, save_one(path, other, "new", 1, 2));
        CHECK(error.code() == ErrorCode::kConflict);
      };
      std::jthread late;
      AtStep ops("token published", [&] { late = std::jthread(be_refused); });
      first.file_ops = &ops;
      if (named) be_refused();
      const std::string told = error_of([&] { save_one(path, first, "new", 0, 2); });
      if (late.joinable()) late.join();
      CHECK(has(told, "shard 1 failed: ") && has(told, "holds a checkpoint"));
      CHECK_EQ(loaded(path), "old");
      CHECK(only_a_checkpoint(path));
      if (!named) continue;
      // What it told before does not count when the shard tries again.
      be_refused();
      SaveOptions again = leads;
      again.attempt = "a";
      again.run = "r";
      save_one(path, again, "new", 1, 2);
      save_one(path, again, "new", 0, 2);
      CHECK_EQ(loaded(path), "new");
      CHECK(only_a_checkpoint(path));
    }
  }
}

TEST(a_shard_that_cannot_prepare_the_directory_tells_shard_0) {
  for (const bool begins : {false, true}) {
    const TempDir dir;
    SaveOptions options = options_of(CheckpointLayout::kPlain);
    options.attempt = "a";
    options.run = "r";
    faulty::FaultyFileOps ops({1, faulty::Call::kFsync, EIO, false});
    SaveOptions other = options;
    other.file_ops = &ops;
    if (begins) {
      Saver saver(1, 2, 1, dir / "ckpt");
      saver.configure(other);
      CHECK_THROWS(Error, saver.begin());
    } else {
      CHECK_THROWS(Error, save_one(dir / "ckpt", other, "new", 1, 2));
    }
    const std::string told = error_of([&] { save_one(dir / "ckpt", options, "new", 0, 2); });
    CHECK(has(told, "shard 1 failed: ") && has(told, "cannot sync the directory"));
  }
}

TEST(a_shard_of_another_run_that_is_cancelled_fails_nobody) {
  for (const char* attempt : {"", "1"}) {
    const TempDir dir;
    SaveOptions options = options_of(CheckpointLayout::kPlain);
    options.attempt = attempt;
    options.run = "tuesday";
    AtStep ops("token published", [&] {
      SaveOptions other = options;
      other.attempt = "";
      other.run = "monday";
      other.timeout = std::chrono::milliseconds(200);
      other.progress = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
      CHECK_THROWS(Error, save_value(dir.path(), other, 1, 1));
    });
    SaveOptions first = options;
    first.file_ops = &ops;
    std::jthread other([&] { save_value(dir.path(), options, 1, 2); });
    save_value(dir.path(), first, 0, 2);
    other.join();
    CHECK_EQ(saved_values(dir.path()), (Rows{{0, {2}}, {40000, {2}}}));
  }
}

TEST(a_shard_that_is_ahead_waits_for_its_next_save) {
  const TempDir dir;
  const SaveOptions base = options_of(CheckpointLayout::kPlain);
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
  SaveOptions slow = base;
  slow.file_ops = &ops;
  save_value(dir.path(), slow, 0, 1);
  CHECK_EQ(saved_values(dir.path()), (Rows{{0, {1}}, {40000, {1}}}));
  save_value(dir.path(), base, 0, 2);
  other.join();
  CHECK_EQ(saved_values(dir.path()), (Rows{{0, {2}}, {40000, {2}}}));
}

TEST(shards_save_many_times_without_meeting) {
  const TempDir dir;
  SaveOptions options = options_of(CheckpointLayout::kPlain);
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
  SaveOptions options = options_of(CheckpointLayout::kPlain);
  SaveOptions impatient = options;
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
  SaveOptions options = options_of(CheckpointLayout::kPlain);
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
    SaveOptions options = options_of(CheckpointLayout::kPlain);
    options.run = run;
    const auto save = [&](std::int64_t shard, int step) {
      SaveOptions own = options;
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
  SaveOptions options = options_of(CheckpointLayout::kPlain);
  options.timeout = std::chrono::milliseconds(100);
  options.attempt = "1";
  CHECK(has(error_of([&] { save_value(dir.path(), options, 1, 1); }), "shard 0 did not begin the save '1'"));
  options.run = "r";
  save_value(dir.path(), options, 1, 1);
  options.attempt = "2";
  CHECK(has(error_of([&] { save_value(dir.path(), options, 1, 2); }), "shard 0 has not ended the save '1'"));
}

TEST(a_turn_keeps_other_saves_out) {
  const TempDir dir;
  const Saver first(0, 1, 1, dir.path());
  auto turn = first.begin();
  const Error error = CHECK_THROWS(Error, save_one(dir.path(), options_of(CheckpointLayout::kPlain), "later"));
  CHECK(error.code() == ErrorCode::kConflict);
  first.save({}, std::move(turn));
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
    SaveOptions options = options_of(CheckpointLayout::kPlain);
    options.attempt = attempt;
    options.file_ops = &here;
    std::jthread other([&] {
      SaveOptions own = options;
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
    SaveOptions options = options_of(CheckpointLayout::kPlain);
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

TEST(what_older_versions_left_is_no_obstacle) {
  for (const char* attempt : {"a", ""}) {
    const TempDir dir;
    write_file(dir / ".weightstore-save.lock", "");
    write_file(dir / ".weightstore-save.token", "a\n");
    write_file(dir / ".weightstore-save.a-s00001.json",
               R"({"version":1,"attempt":"a","run":"","written_ms":1,"shard":1,"shard_num":2,"parallel":1,)"
               R"("layout":"plain","files":[],"error":""})");
    SaveOptions options = options_of(CheckpointLayout::kPlain);
    options.attempt = attempt;
    std::jthread other([&] { save_value(dir.path(), options, 1, 1); });
    save_value(dir.path(), options, 0, 1);
    other.join();
    CHECK_EQ(saved_values(dir.path()), (Rows{{0, {1}}, {40000, {1}}}));
    CHECK(only_a_checkpoint(dir.path()));
  }
}

TEST(a_reader_beside_a_saver_always_finds_a_whole_checkpoint) {
  for (const bool plain : {true, false}) {
    const TempDir dir;
    const std::filesystem::path path = dir / "ckpt";
    SaveOptions options = options_of(plain ? CheckpointLayout::kPlain : CheckpointLayout::kRecis, !plain);
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

TEST(a_crash_then_the_same_attempt) {
  for (const char* step : {"data written", "record written", "records merged", "journal written", "data renamed",
                           "before index", "index written", "before swap", "swapped", "cleaned"}) {
    const TempDir dir;
    const std::filesystem::path path = dir / "ckpt";
    SaveOptions options = options_of(CheckpointLayout::kRecis, true);
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

TEST(directories_whose_names_begin_alike_leave_each_other_alone) {
  const TempDir dir;
  SaveOptions options = options_of(CheckpointLayout::kRecis, true);
  options.attempt = "7";
  save_one(dir / "ckpt.v2", options, "old");
  AtStep ops("before swap", [&] { save_one(dir / "ckpt", options_of(CheckpointLayout::kRecis, true), "other"); });
  options.attempt = "8";
  options.file_ops = &ops;
  save_one(dir / "ckpt.v2", options, "new");
  CHECK_EQ(loaded(dir / "ckpt.v2"), "new");
  CHECK_EQ(loaded(dir / "ckpt"), "other");
}

TEST(an_attempt_may_be_called_like_a_file_of_the_protocol) {
  for (const char* attempt : {"token", "token.1", "token5", "lock", "journal", "a-s00001", "a.json", "x-f00000"}) {
    for (const bool plain : {true, false}) {
      const TempDir dir;
      SaveOptions options = options_of(plain ? CheckpointLayout::kPlain : CheckpointLayout::kRecis, !plain);
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
  SaveOptions options = options_of(CheckpointLayout::kPlain);
  options.attempt = "a";
  options.run = "r";
  options.timeout = std::chrono::milliseconds(100);
  save_one(dir.path(), options, "part", 1, 3);
  std::filesystem::copy_file(dir / ".weightstore-save.a-s00001.json", dir / ".weightstore-save.a-s00002.json");
  const Error error = CHECK_THROWS(Error, save_one(dir.path(), options, "new", 0, 3));
  CHECK(std::string(error.what()).find("shard 2: its record is of another save") != std::string::npos);
}

TEST(a_shard_need_not_wait_to_be_refused) {
  const TempDir dir;
  save_one(dir.path(), options_of(CheckpointLayout::kRecis), "old");
  const Error error = CHECK_THROWS(Error, save_one(dir.path(), options_of(CheckpointLayout::kRecis), "new", 1, 2));
  CHECK(error.code() == ErrorCode::kConflict);
}

TEST(a_new_directory_is_synced_into_the_one_above) {
  const TempDir dir;
  SyncedDirectories ops;
  SaveOptions options = options_of(CheckpointLayout::kPlain);
  options.file_ops = &ops;
  save_one(dir / "runs/ckpt", options, "new");
  CHECK(ops.has(dir.path()) && ops.has(dir / "runs") && ops.has(dir / "runs/ckpt"));
}

RUN_TESTS()
