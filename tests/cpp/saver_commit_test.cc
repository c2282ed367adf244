// The commit: crashes at every step, faults, leftovers, two saves at once.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <set>
#include <string>

#include "check.h"
#include "faulty_file_ops.h"
#include "io/file_ops.h"
#include "leftovers.h"
#include "saver_files.h"
#include "weightstore/error.h"

using namespace weightstore;
using namespace saver_files;
using leftovers::names_in;
using test_files::read_file;
using test_files::TempDir;
using test_files::write_file;

namespace {

// Ends the process, without cleaning up, at the n-th step of this name.
class DyingFileOps final : public io::FileOps {
 public:
  DyingFileOps(std::string step, int at) : step_(std::move(step)), left_(at) {}
  void reached(const char* step) override {
    if (step_ == step && --left_ == 0) ::_exit(42);
  }

 private:
  const std::string step_;
  std::atomic<int> left_;
};

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

SaveOptions options_of(CheckpointLayout layout, bool overwrite = false) {
  SaveOptions options;
  options.layout = layout;
  options.overwrite = overwrite;
  options.timeout = std::chrono::seconds(20);
  return options;
}

void save_one(const std::filesystem::path& path, const SaveOptions& options, const std::string& content,
              std::int64_t shard = 0, std::int64_t shards = 1) {
  Saver saver(shard, shards, 2, path);
  saver.configure(options);
  const auto user = table("user", 2, static_cast<std::uint64_t>(shard), static_cast<std::uint64_t>(shards));
  fill(*user, {1, 2, 3, 40000, 50000}, 2);
  saver.save(saver.make_write_blocks(Tables{user}, {dense("w", DType::kU8, {content.size()}, content),
                                                    dense("v", DType::kU8, {content.size()}, content)}));
}

// The exit code of a child that does this.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// What a loader finds: the content of the last complete save, or nothing.
std::string loaded(const std::filesystem::path& path) {
  try {
    const CheckpointReader reader(path);
    reader.verify();
    CHECK_EQ(read(reader, "w"), read(reader, "v"));
    return read(reader, "w");
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kIo);
    return "";
  }
}

bool only_a_checkpoint(const std::filesystem::path& directory) {
  for (const std::string& name : names_in(directory)) {
    if (name.starts_with(".weightstore-save")) return false;
  }
  for (const std::string& name : names_in(directory.parent_path())) {
    if (name.ends_with(".weightstore-save")) return false;
  }
  return true;
}

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
      SaveOptions options = options_of(c.layout, c.overwrite);
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
    SaveOptions options = options_of(CheckpointLayout::kRecis);
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
    const SaveOptions base = options_of(plain ? CheckpointLayout::kPlain : CheckpointLayout::kRecis, !plain);
    int at = 1;
    for (int code = 42; code == 42; ++at) {
      const TempDir dir;
      const std::filesystem::path path = dir / "ckpt";
      save_one(path, base, "old");
      DyingAtCall ops(at);
      SaveOptions options = base;
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
  for (const faulty::Call kind : {faulty::Call::kPwrite, faulty::Call::kFallocate, faulty::Call::kFsync,
                                  faulty::Call::kClose, faulty::Call::kRename, faulty::Call::kOpen}) {
    for (std::uint64_t at = 1; at <= 5; ++at) {
      const TempDir dir;
      const std::filesystem::path path = dir / "ckpt";
      save_one(path, options_of(CheckpointLayout::kPlain), "old");
      faulty::FaultyFileOps ops({at, kind, ENOSPC, true});
      SaveOptions options = options_of(CheckpointLayout::kPlain);
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
    }
  }
}

TEST(a_dead_attempts_record_is_never_consumed) {
  const TempDir dir;
  SaveOptions options = options_of(CheckpointLayout::kPlain);
  options.attempt = "step-1";
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

TEST(a_record_whose_files_are_gone_or_cut_does_not_count) {
  for (const bool gone : {true, false}) {
    const TempDir dir;
    SaveOptions options = options_of(CheckpointLayout::kPlain);
    options.attempt = "a";
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
  faulty::FaultyFileOps ops({1, faulty::Call::kFallocate, ENOSPC, true});
  options.file_ops = &ops;
  CHECK_THROWS(Error, save_one(dir.path(), options, "part", 1, 2));
  options.file_ops = nullptr;
  const Error error = CHECK_THROWS(Error, save_one(dir.path(), options, "part", 0, 2));
  CHECK(std::string(error.what()).find("shard 1 failed: ") != std::string::npos);
}

TEST(a_second_save_at_once_is_refused) {
  const TempDir dir;
  bool tried = false;
  SaveOptions options = options_of(CheckpointLayout::kPlain);
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

TEST(cancelling_leaves_what_was_there) {
  const TempDir dir;
  save_one(dir.path(), options_of(CheckpointLayout::kPlain), "old");
  const std::vector<std::string> before = names_in(dir.path());
  SaveOptions options = options_of(CheckpointLayout::kPlain);
  options.attempt = "x";
  options.timeout = std::chrono::seconds(5);
  options.progress = [](std::uint64_t, std::uint64_t, std::string_view) { return false; };
  const Error error = CHECK_THROWS(Error, save_one(dir.path(), options, "new", 0, 2));
  CHECK(error.code() == ErrorCode::kCancelled);
  CHECK_EQ(names_in(dir.path()), before);
}

RUN_TESTS()
