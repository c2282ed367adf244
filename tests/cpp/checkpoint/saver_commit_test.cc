// The commit: crashes at every step, faults, two saves at once.

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "check.h"
#include "checkpoint/save/protocol/staging_directory.h"
#include "faulty_file_ops.h"
#include "saver_crash.h"

using namespace weightstore;
using namespace saver_crash;
using test_files::read_file;
using test_files::TempDir;
using test_files::write_file;

namespace {

// Dies at the n-th system call that changes a name or syncs.
class DyingAtCall final : public io::FileOps {
 public:
  explicit DyingAtCall(int at) : left_(at) {}
  int fsync(int fd) override { return count() + FileOps::fsync(fd); }
  int rename(const char* from, const char* to) override { return count() + FileOps::rename(from, to); }
  int rename_new(const char* from, const char* to) override { return count() + FileOps::rename_new(from, to); }
  int unlink(const char* path) override { return count() + FileOps::unlink(path); }
  int exchange(const char* a, const char* b) override { return count() + FileOps::exchange(a, b); }
  int mkdir(const char* path, mode_t mode) override { return count() + FileOps::mkdir(path, mode); }
  int rmdir(const char* path) override { return count() + FileOps::rmdir(path); }

 private:
  int count() {
    if (--left_ == 0) ::_exit(42);
    return 0;
  }
  std::atomic<int> left_;
};

}  // namespace

TEST(a_crash_at_any_step_leaves_old_or_new) {
  struct Case {
    CheckpointLayout layout;
    bool overwrite;
    std::vector<const char*> steps;
    const char* commit;  // the first step after which the new checkpoint counts
  };
  const Case cases[] = {
      {CheckpointLayout::kPlain,
       false,
       {"data written", "record written", "records merged", "index written", "cleaned"},
       "index written"},
      {CheckpointLayout::kRecis,
       true,
       {"data written", "record written", "records merged", "journal written", "data renamed", "before index",
        "index written", "before swap", "swapped", "cleaned"},
       "swapped"},
  };
  for (const Case& c : cases) {
    bool committed = false;
    for (const char* step : c.steps) {
      const TempDir dir;
      const std::filesystem::path path = dir / "ckpt";
      TestOptions options = options_of(c.layout, c.overwrite);
      save_one(path, options, "old");
      write_file(path / "extra.pt", "somebody else's");
      DyingFileOps ops(step, 1);
      options.file_ops = &ops;
      CHECK_EQ(in_child([&] { save_one(path, options, "new"); }), 42);
      committed |= std::strcmp(step, c.commit) == 0;
      CHECK_EQ(loaded(path), committed ? "new" : "old");
      options.file_ops = nullptr;
      save_one(path, options, "newer");
      CHECK_EQ(loaded(path), "newer");
      CHECK(only_a_checkpoint(path));
      CHECK_EQ(read_file(path / "extra.pt"), "somebody else's");
      CHECK(names_in(path).size() <= 8);
    }
  }
}

TEST(a_crash_during_a_first_recis_save_leaves_nothing_that_loads) {
  for (const char* step : {"data written", "record written", "journal written", "data renamed", "before index"}) {
    const TempDir dir;
    TestOptions options = options_of(CheckpointLayout::kRecis);
    DyingFileOps ops(step, 1);
    options.file_ops = &ops;
    CHECK_EQ(in_child([&] { save_one(dir.path(), options, "new"); }), 42);
    const Error error = CHECK_THROWS(Error, CheckpointReader(dir.path()));
    CHECK(std::string(error.what()).find("not complete") != std::string::npos);
    options.file_ops = nullptr;
    save_one(dir.path(), options, "newer");
    CHECK_EQ(loaded(dir.path()), "newer");
    CHECK_EQ(names_in(dir.path()).size(), std::size_t{5});
  }
}

TEST(a_crash_at_any_call_leaves_old_or_new) {
  for (const bool plain : {true, false}) {
    const TestOptions base = options_of(plain ? CheckpointLayout::kPlain : CheckpointLayout::kRecis, !plain);
    int at = 1;
    for (int code = 42; code == 42; ++at) {
      const TempDir dir;
      const std::filesystem::path path = dir / "ckpt";
      save_one(path, base, "old");
      DyingAtCall ops(at);
      TestOptions options = base;
      options.file_ops = &ops;
      code = in_child([&] { save_one(path, options, "new"); });
      CHECK(code == 42 || code == 0);
      const std::string found = loaded(path);
      CHECK(found == "new" || (code == 42 && found == "old"));
      save_one(path, base, "newer");
      CHECK_EQ(loaded(path), "newer");
      CHECK(only_a_checkpoint(path));
    }
    CHECK(at > 10);
  }
}

TEST(a_full_disk_is_an_error_and_the_old_checkpoint_stays) {
  for (const bool plain : {true, false}) {
    const TestOptions base = options_of(plain ? CheckpointLayout::kPlain : CheckpointLayout::kRecis, !plain);
    for (const faulty::Call kind : {faulty::Call::kPwrite, faulty::Call::kFallocate, faulty::Call::kFsync,
                                    faulty::Call::kClose, faulty::Call::kRename, faulty::Call::kOpen}) {
      for (std::uint64_t at = 1; at <= 12; ++at) {
        const TempDir dir;
        const std::filesystem::path path = dir / "ckpt";
        save_one(path, base, "old");
        const std::size_t descriptors = directory_listing::open_descriptors();
        faulty::FaultyFileOps ops({at, kind, ENOSPC, true});
        TestOptions options = base;
        options.file_ops = &ops;
        try {
          save_one(path, options, "new");
          CHECK_EQ(loaded(path), "new");
        } catch (const Error& error) {
          CHECK_EQ(error.os_errno(), ENOSPC);
          // A directory that could not be synced after the commit is the one error with the new one in place.
          const std::string found = loaded(path);
          CHECK(found == "old" || (kind == faulty::Call::kFsync && found == "new"));
        }
        CHECK_EQ(directory_listing::open_descriptors(), descriptors);
        save_one(path, base, "newer");
        CHECK_EQ(loaded(path), "newer");
        CHECK(only_a_checkpoint(path));
      }
    }
  }
}

TEST(a_second_save_at_once_is_refused) {
  const TempDir dir;
  bool tried = false;
  TestOptions options = options_of(CheckpointLayout::kPlain);
  options.progress = [&](std::uint64_t, std::uint64_t, std::string_view) { return true; };
  class Meanwhile final : public io::FileOps {
   public:
    explicit Meanwhile(std::function<void()> body) : body_(std::move(body)) {}
    void reached(const char* step) override {
      if (std::strcmp(step, "data written") == 0) body_();
    }

   private:
    const std::function<void()> body_;
  };
  Meanwhile ops([&] {
    const Error error = CHECK_THROWS(Error, save_one(dir.path(), options_of(CheckpointLayout::kPlain), "second"));
    CHECK(error.code() == ErrorCode::kConflict);
    tried = true;
  });
  options.file_ops = &ops;
  save_one(dir.path(), options, "first");
  CHECK(tried);
  CHECK_EQ(loaded(dir.path()), "first");
  CHECK(only_a_checkpoint(dir.path()));
}

TEST(what_is_there_is_replaced_only_where_that_was_asked_for) {
  const TempDir dir;
  save_one(dir / "r", options_of(CheckpointLayout::kRecis), "old");
  const Error kept = CHECK_THROWS(Error, save_one(dir / "r", options_of(CheckpointLayout::kRecis), "new"));
  CHECK(kept.code() == ErrorCode::kConflict);
  CHECK_THROWS(Error, save_one(dir / "r", options_of(CheckpointLayout::kPlain, true), "new"));
  CHECK_EQ(loaded(dir / "r"), "old");
  save_one(dir / "r", options_of(CheckpointLayout::kRecis, true), "new");
  CHECK_EQ(loaded(dir / "r"), "new");

  std::filesystem::create_directory(dir / "hf");
  Writer writer;
  writer.add("w", DType::kU8, {3}, test_files::as_bytes("abc"));
  writer.write_shards(dir / "hf/model.safetensors.index.json", 1 << 20);
  CHECK_THROWS(Error, save_one(dir / "hf", options_of(CheckpointLayout::kPlain), "new"));
  save_one(dir / "hf", options_of(CheckpointLayout::kPlain, true), "new");
  CHECK_EQ(loaded(dir / "hf"), "new");
  CHECK(!std::filesystem::exists(dir / "hf/model-00001-of-00001.safetensors"));
}

TEST(a_directory_that_is_swapped_stays_as_private_as_it_was) {
  const TempDir dir;
  const auto only_ours = std::filesystem::perms::owner_all;
  save_one(dir / "ckpt", options_of(CheckpointLayout::kRecis), "old");
  std::filesystem::permissions(dir / "ckpt", only_ours);
  save_one(dir / "ckpt", options_of(CheckpointLayout::kRecis, true), "new");
  CHECK_EQ(loaded(dir / "ckpt"), "new");
  CHECK(std::filesystem::status(dir / "ckpt").permissions() == only_ours);
}

// The staging directory has the name of the target and the attempt in its own name.
TEST(a_target_may_have_the_longest_name_that_a_directory_can_have) {
  const TempDir dir;
  std::string umlauts;
  while (umlauts.size() < 254) umlauts += "\xc3\xbc";
  for (const std::string& name : {std::string(255, '1'), std::string(172, 'a'), "x" + umlauts, umlauts}) {
    TestOptions options = options_of(CheckpointLayout::kRecis);
    save_one(dir / name, options, "old");
    options.overwrite = true;
    options.attempt = std::string(64, 'b');
    // A save that died leaves its staging directory, which the next save finds.
    CHECK_EQ(in_child([&] {
               DyingFileOps dying("before swap", 1);
               options.file_ops = &dying;
               save_one(dir / name, options, "dead");
             }),
             42);
    CHECK(!only_a_checkpoint(dir / name));
    options.attempt = "c";
    save_one(dir / name, options, "new");
    CHECK_EQ(loaded(dir / name), "new");
    CHECK(only_a_checkpoint(dir / name));
  }
}

TEST(targets_with_long_names_that_begin_alike_have_staging_directories_of_their_own) {
  const std::filesystem::path parent = "/somewhere";
  const std::string longest(254, 'a');
  CHECK(checkpoint::staging_directory(parent / (longest + "1"), "1") !=
        checkpoint::staging_directory(parent / (longest + "2"), "1"));
  CHECK_EQ(checkpoint::staging_directory(parent / longest, std::string(64, 'b')).filename().native().size(),
           std::size_t{255});
  CHECK_EQ(checkpoint::staging_directory(parent / "ckpt", "1").native(), "/somewhere/.ckpt~1.weightstore-save");
}

TEST(files_survive_a_swap_beside_a_checkpoint_that_cannot_be_read) {
  const TempDir dir;
  const std::filesystem::path path = dir / "ckpt";
  save_one(path, options_of(CheckpointLayout::kRecis), "old");
  write_file(path / "index", "{");
  write_file(path / "config.json", "somebody else's");
  write_file(path / "model-000000-of-000009.safetensors", "of another save");
  save_one(path, options_of(CheckpointLayout::kRecis, true), "new");
  CHECK_EQ(loaded(path), "new");
  CHECK(only_a_checkpoint(path));
  CHECK_EQ(read_file(path / "config.json"), "somebody else's");
  CHECK_EQ(read_file(path / "model-000000-of-000009.safetensors"), "of another save");
}

TEST(files_that_are_no_part_of_a_checkpoint_stay) {
  for (const char* name : {"model-000001-of-000002.safetensors", "tensorkey.json"}) {
    const TempDir dir;
    write_file(dir / name, "somebody else's");
    for (int i = 0; i < 2; ++i) {
      const Error error = CHECK_THROWS(Error, save_one(dir.path(), options_of(CheckpointLayout::kRecis), "new"));
      CHECK(error.code() == ErrorCode::kConflict);
      CHECK_EQ(names_in(dir.path()), std::vector<std::string>{name});
      CHECK_EQ(read_file(dir / name), "somebody else's");
    }
  }
}

// A record counts from the moment when it has its name, whatever becomes of the shard that wrote it.
TEST(a_shard_that_fails_behind_its_record_leaves_its_files_to_shard_0) {
  // Shard 0 stops between the moment when it has all records and its commit, until the other shard has failed.
  class Leader final : public io::FileOps {
   public:
    void reached(const char* step) override {
      if (std::strcmp(step, "records collected") != 0) return;
      collected.set_value();
      failed.get_future().wait();
    }
    std::promise<void> collected;
    std::promise<void> failed;
  };
  // The other shard cannot sync the directory after its record got its name.
  class Follower final : public io::FileOps {
   public:
    explicit Follower(std::future<void> collected) : collected_(std::move(collected)) {}
    int rename(const char* from, const char* to) override {
      const int result = FileOps::rename(from, to);
      published_ = published_ || std::string(to).ends_with("-s00001.json");
      return result;
    }
    int fsync(int fd) override {
      if (!published_) return FileOps::fsync(fd);
      collected_.wait();
      errno = EIO;
      return -1;
    }

   private:
    std::future<void> collected_;
    bool published_ = false;
  };
  for (const bool plain : {true, false}) {
    const TempDir dir;
    const std::filesystem::path path = dir / "ckpt";
    TestOptions options = options_of(plain ? CheckpointLayout::kPlain : CheckpointLayout::kRecis, !plain);
    save_one(path, options, "old");
    options.attempt = "a";
    options.run = "r";
    Leader leader;
    std::jthread other([&] {
      Follower follower(leader.collected.get_future());
      TestOptions own = options;
      own.file_ops = &follower;
      const Error error = CHECK_THROWS(Error, save_one(path, own, "new", 1, 2));
      CHECK_EQ(error.os_errno(), EIO);
      leader.failed.set_value();
    });
    TestOptions own = options;
    own.file_ops = &leader;
    save_one(path, own, "new", 0, 2);
    other.join();
    CHECK_EQ(loaded(path), "new");
    CHECK(only_a_checkpoint(path));
  }
}

TEST(cancelling_leaves_what_was_there) {
  for (const bool plain : {true, false}) {
    const TempDir dir;
    const std::filesystem::path path = dir / "ckpt";
    TestOptions options = options_of(plain ? CheckpointLayout::kPlain : CheckpointLayout::kRecis, !plain);
    save_one(path, options, "old");
    const std::vector<std::string> before = names_in(path);
    options.attempt = "x";
    options.progress = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
    const Error error = CHECK_THROWS(Error, save_one(path, options, "new", 0, 2));
    CHECK(error.code() == ErrorCode::kCancelled);
    CHECK_EQ(names_in(path), before);
    CHECK(only_a_checkpoint(path));
  }
}

RUN_TESTS()
