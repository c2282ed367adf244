// A shard that fails, is cancelled or is refused tells shard 0 why, so that shard 0 need not wait.

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <future>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "faulty_file_ops.h"
#include "saver_steps.h"

using namespace weightstore;
using namespace saver_steps;
using test_files::TempDir;

TEST(a_shard_that_fails_tells_shard_0_why) {
  const TempDir dir;
  TestOptions options = options_of(CheckpointLayout::kPlain);
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
    TestOptions options = options_of(plain ? CheckpointLayout::kPlain : CheckpointLayout::kRecis, !plain);
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
    TestOptions options = options_of(CheckpointLayout::kPlain);
    options.attempt = attempt;
    std::promise<void> cancelled;
    std::jthread other([&] {
      TestOptions own = options;
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
  const TestOptions leads = options_of(CheckpointLayout::kRecis, true);
  for (const CheckpointLayout layout : {CheckpointLayout::kRecis, CheckpointLayout::kPlain}) {
    for (const bool named : {true, false}) {
      const TempDir dir;
      const std::filesystem::path path = dir / "ckpt";
      save_one(path, leads, "old");
      TestOptions first = leads;
      TestOptions other = options_of(layout);
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
      TestOptions again = leads;
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
    TestOptions options = options_of(CheckpointLayout::kPlain);
    options.attempt = "a";
    options.run = "r";
    faulty::FaultyFileOps ops({1, faulty::Call::kFsync, EIO, false});
    TestOptions other = options;
    other.file_ops = &ops;
    if (begins) {
      const io::FileOpsScope scope(ops);
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
    TestOptions options = options_of(CheckpointLayout::kPlain);
    options.attempt = attempt;
    options.run = "tuesday";
    AtStep ops("token published", [&] {
      TestOptions other = options;
      other.attempt = "";
      other.run = "monday";
      other.timeout = std::chrono::milliseconds(200);
      other.progress = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
      CHECK_THROWS(Error, save_value(dir.path(), other, 1, 1));
    });
    TestOptions first = options;
    first.file_ops = &ops;
    std::jthread other([&] { save_value(dir.path(), options, 1, 2); });
    save_value(dir.path(), first, 0, 2);
    other.join();
    CHECK_EQ(saved_values(dir.path()), (Rows{{0, {2}}, {40000, {2}}}));
  }
}

TEST(a_shard_need_not_wait_to_be_refused) {
  const TempDir dir;
  save_one(dir.path(), options_of(CheckpointLayout::kRecis), "old");
  const Error error = CHECK_THROWS(Error, save_one(dir.path(), options_of(CheckpointLayout::kRecis), "new", 1, 2));
  CHECK(error.code() == ErrorCode::kConflict);
}
