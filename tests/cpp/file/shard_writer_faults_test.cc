// A set of shards is saved while every call to the system fails once, and while the process is killed before every call
// to the system. Whatever happens, the index leads to the old set or to the new one, whole; files of others stay; and
// the next save leaves nothing behind but its set.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>

#include "check.h"
#include "faulty_file_ops.h"
#include "leftovers.h"
#include "shard_models.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

using namespace weightstore;
using faulty::Call;
using faulty::FaultyFileOps;
using leftovers::names_in;
using leftovers::open_descriptors;
using shard_models::kIndex;
using shard_models::Model;
using test_files::read_file;
using test_files::TempDir;
using test_files::write_file;

namespace {

// Thousands of saves: in memory, where a sync costs nothing. Before any TempDir is made.
[[maybe_unused]] const bool kInMemory = ::access("/dev/shm", W_OK) == 0 && ::setenv("TMPDIR", "/dev/shm", 0) == 0;

constexpr int kShort = 0;
using Files = std::map<std::string, std::string>;

// Files that weightstore did not write, though some names look like it. The index of no test names them.
const Files kForeign{{"config.json", "{}"},
                     {"model-00001-of-00007.safetensors", "theirs"},
                     {"model-1a2b3c4d-00001-of-00003.safetensors", "theirs too"},
                     {"model.safetensors", "one file"},
                     {"notes.txt", "notes"}};

enum class Before : std::uint8_t { kNothing, kStray, kUsualNames, kNamesWithId };

// A directory with a set in it, or not, and how it may look after a save.
class Scene {
 public:
  Scene(Before before, bool overwrite, bool durable) : before_(before), overwrite_(overwrite), durable_(durable) {
    foreign_ = kForeign;
    if (before_ == Before::kStray) foreign_.emplace("model-00002-of-00002.safetensors", "a stray shard");
  }

  // As it is before the save that shall fail.
  void set_up() const {
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) std::filesystem::remove(entry.path());
    for (const auto& [name, text] : foreign_) write_file(dir_ / name, text);
    if (has_old()) old_.writer.write_shards(dir_ / kIndex, 100, quick());
    if (before_ == Before::kNamesWithId) old_.writer.write_shards(dir_ / kIndex, 100, quick());
  }

  void save(io::FileOps& ops) const {
    WriteOptions options;
    options.overwrite = overwrite_;
    options.durable = durable_;
    options.file_ops = &ops;
    new_.writer.write_shards(dir_ / kIndex, 100, options);
  }

  // Whether the new set is there; else it is the old one, or none where there was none.
  bool is_new() const {
    check_foreign();
    if (!std::filesystem::exists(dir_ / kIndex)) {
      CHECK(!has_old());
      return false;
    }
    ReadOptions options;
    options.map = false;
    const Reader reader = Reader::open(dir_ / kIndex, options);
    const bool is_new = reader.table().size() == new_.data.size();
    CHECK(is_new || has_old());
    (is_new ? new_ : old_).check(reader);
    return is_new;
  }

  // The next save finds everything that this one left.
  void check_next_save() const {
    const Model next(4, 100, 7);
    const auto names = next.writer.write_shards(dir_ / kIndex, 100, quick());
    next.check(Reader::open(dir_ / kIndex));
    check_foreign();
    if (names_in(dir_.path()).size() != foreign_.size() + names.size() + 1) {
      for (const std::string& name : names_in(dir_.path())) std::fprintf(stderr, "there is %s\n", name.c_str());
      CHECK(false);
    }
  }

  // Nothing is there that the save would have to remove.
  void check_no_leftovers(bool is_new) const {
    const std::size_t shards = is_new ? new_.data.size() : has_old() ? old_.data.size() : 0;
    CHECK_EQ(names_in(dir_.path()).size(), foreign_.size() + (shards == 0 ? 0 : shards + 1));
  }

  bool has_old() const { return before_ == Before::kUsualNames || before_ == Before::kNamesWithId; }

 private:
  static WriteOptions quick() {
    WriteOptions options;
    options.durable = false;
    return options;
  }

  void check_foreign() const {
    for (const auto& [name, text] : foreign_) CHECK_EQ(read_file(dir_ / name), text);
  }

  const Before before_;
  const bool overwrite_;
  const bool durable_;
  Files foreign_;
  const TempDir dir_;
  const Model old_{3, 100, 1};
  const Model new_{2, 100, 50};
};

// Calls `body` for each kind of directory and of save.
void for_every_scene(bool durable, const std::function<void(const Scene&)>& body) {
  for (const Before before : {Before::kNothing, Before::kStray, Before::kUsualNames, Before::kNamesWithId}) {
    body(Scene(before, true, durable));
  }
  body(Scene(Before::kNothing, false, durable));
}

// A set that is replaced by one file, under one name, and how the directory may look afterwards.
class OneFileScene {
 public:
  OneFileScene(bool names_with_id, bool durable, bool next_is_set)
      : names_with_id_(names_with_id), durable_(durable), next_is_set_(next_is_set) {}

  void set_up() const {
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) std::filesystem::remove(entry.path());
    for (const auto& [name, text] : foreign_) write_file(dir_ / name, text);
    for (int i = 0; i < (names_with_id_ ? 2 : 1); ++i) save_as(old_, 100, false, io::system_file_ops());
  }

  void save(io::FileOps& ops) const { save_as(new_, 1000, durable_, ops); }

  // Whether the one file is there; the set is whole, or has no index.
  bool is_new() const {
    const bool has_file = std::filesystem::exists(path());
    if (has_file) new_.check(Reader::open(path()));
    if (has_set()) old_.check(Reader::open(dir_ / kIndex));
    CHECK(has_file || has_set());
    return has_file;
  }
  bool has_set() const { return std::filesystem::exists(dir_ / kIndex); }

  void check_next_save() const {
    const Model next(4, 100, 7);
    save_as(next, next_is_set_ ? 100 : 1000, false, io::system_file_ops());
    next.check(Reader::open(next_is_set_ ? dir_ / kIndex : path()));
    check_no_leftovers(next_is_set_ ? 5 : 1);
  }

  void check_no_leftovers(std::size_t files) const {
    for (const auto& [name, text] : foreign_) CHECK_EQ(read_file(dir_ / name), text);
    if (names_in(dir_.path()).size() == foreign_.size() + files) return;
    for (const std::string& name : names_in(dir_.path())) std::fprintf(stderr, "there is %s\n", name.c_str());
    CHECK(false);
  }

 private:
  std::filesystem::path path() const { return dir_ / "model.safetensors"; }
  void save_as(const Model& model, std::uint64_t max_shard_bytes, bool durable, io::FileOps& ops) const {
    WriteOptions options;
    options.durable = durable;
    options.file_ops = &ops;
    model.writer.write_file_or_shards(path(), max_shard_bytes, options);
  }

  const bool names_with_id_;
  const bool durable_;
  const bool next_is_set_;
  const Files foreign_{{"config.json", "{}"}, {"model-00001-of-00007.safetensors", "theirs"}};
  const TempDir dir_;
  const Model old_{3, 100, 1};
  const Model new_{2, 100, 50};
};

void for_every_one_file_scene(const std::function<void(const OneFileScene&)>& body) {
  for (const bool names_with_id : {false, true}) {
    for (const bool next_is_set : {false, true}) body(OneFileScene(names_with_id, false, next_is_set));
  }
  body(OneFileScene(false, true, false));
}

bool says_unchanged(const Error& error) { return std::string(error.what()).find("unchanged") != std::string::npos; }

// Kills the process before the n-th call.
class KillingFileOps final : public io::FileOps {
 public:
  explicit KillingFileOps(std::uint64_t at) : left_(at) {}

  int open(const char* path, int flags, mode_t mode) override { return count(), FileOps::open(path, flags, mode); }
  int close(int fd) override { return count(), FileOps::close(fd); }
  ssize_t pwrite(int fd, const void* data, std::size_t length, off_t offset) override {
    return count(), FileOps::pwrite(fd, data, length, offset);
  }
  ssize_t pwritev(int fd, const struct iovec* pieces, int pieces_count, off_t offset) override {
    return count(), FileOps::pwritev(fd, pieces, pieces_count, offset);
  }
  int fallocate(int fd, off_t offset, off_t length) override { return count(), FileOps::fallocate(fd, offset, length); }
  int fsync(int fd) override { return count(), FileOps::fsync(fd); }
  int flock(int fd, int operation) override { return count(), FileOps::flock(fd, operation); }
  int rename(const char* from, const char* to) override { return count(), FileOps::rename(from, to); }
  int rename_new(const char* from, const char* to) override { return count(), FileOps::rename_new(from, to); }
  int unlink(const char* path) override { return count(), FileOps::unlink(path); }

 private:
  void count() {
    if (--left_ == 0) ::kill(::getpid(), SIGKILL);
  }

  std::uint64_t left_;
};

// Calls `save` in a child that dies before its n-th call. False when it came to its end.
bool dies_at(std::uint64_t n, const std::function<void(io::FileOps&)>& save) {
  const pid_t child = ::fork();
  if (child == 0) {
    KillingFileOps ops(n);
    try {
      save(ops);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

void kill_before_every_call(const Scene& scene) {
  std::uint64_t n = 1;
  bool committed = false;
  for (;; ++n) {
    scene.set_up();
    const bool died = dies_at(n, [&](io::FileOps& ops) { scene.save(ops); });
    const bool is_new = scene.is_new();
    CHECK(is_new || !committed);  // the commit is one call
    committed = is_new;
    if (!died) break;
    scene.check_next_save();
  }
  CHECK(committed);
  CHECK(n > 20);
  scene.check_no_leftovers(true);
}

// How many calls a save makes, and how many descriptors are open at most.
class CountingFileOps final : public io::FileOps {
 public:
  int open(const char* path, int flags, mode_t mode) override {
    const int fd = FileOps::open(path, flags, mode);
    most_open = std::max(most_open, open_descriptors());
    ++calls;
    return fd;
  }
  int close(int fd) override { return ++calls, FileOps::close(fd); }
  int fstat(int fd, struct stat* out) override { return ++calls, FileOps::fstat(fd, out); }
  int flock(int fd, int operation) override { return ++calls, FileOps::flock(fd, operation); }
  int rename_new(const char* from, const char* to) override { return ++calls, FileOps::rename_new(from, to); }
  int unlink(const char* path) override { return ++calls, FileOps::unlink(path); }

  std::size_t calls = 0;
  std::size_t most_open = 0;
};

void fail_every_call(const Scene& scene, int error) {
  for (std::uint64_t n = 1;; ++n) {
    scene.set_up();
    const std::size_t descriptors = open_descriptors();
    FaultyFileOps ops({.at = n, .kind = {}, .error = error});
    bool succeeded = false;
    bool unchanged = false;
    try {
      scene.save(ops);
      succeeded = true;
    } catch (const Error& thrown) {
      CHECK_EQ(thrown.os_errno(), error);
      CHECK(!thrown.path().empty());
      CHECK(error != EINTR && error != kShort);
      unchanged = says_unchanged(thrown);
    }
    CHECK_EQ(open_descriptors(), descriptors);
    const bool is_new = scene.is_new();
    CHECK(!succeeded || is_new);
    CHECK(!unchanged || !is_new);
    if (ops.injected() == 0) {
      CHECK(succeeded);
      CHECK(n > 20);
      scene.check_no_leftovers(true);
      return;
    }
    scene.check_next_save();
  }
}

}  // namespace

TEST(every_call_fails_once) {
  for (const bool durable : {false, true}) {
    for_every_scene(durable, [&](const Scene& scene) {
      for (const int error : {EIO, EINTR, kShort}) {
        // Syncs take long, and they fail in one way only.
        if (!durable || error == EIO) fail_every_call(scene, error);
      }
    });
  }
  fail_every_call(Scene(Before::kUsualNames, true, true), EINTR);
}

TEST(a_disk_that_stays_broken_leaves_the_old_set) {
  for_every_scene(true, [](const Scene& scene) {
    for (const Call kind : {Call::kPwrite, Call::kFsync, Call::kRename, Call::kFallocate}) {
      scene.set_up();
      FaultyFileOps ops({.at = 1, .kind = kind, .error = EIO, .onwards = true});
      try {
        scene.save(ops);
        CHECK_EQ(ops.injected(), 0u);
      } catch (const Error& error) {
        CHECK_EQ(error.os_errno(), EIO);
        CHECK(!scene.is_new());
        scene.check_no_leftovers(false);
      }
    }
  });
}

TEST(everything_new_is_synced_before_the_commit_and_nothing_old_removed) {
  const Scene scene(Before::kUsualNames, true, true);
  scene.set_up();
  FaultyFileOps ops;
  scene.save(ops);
  const std::vector<Call> log = ops.log();
  const auto commit = std::find(log.begin(), log.end(), Call::kRename);
  CHECK(commit != log.end());
  CHECK_EQ(std::count(log.begin(), log.end(), Call::kRename), 1);
  // Two shards, the journal, the directory with their names, the index; then the directory with the index's name.
  CHECK_EQ(std::count(log.begin(), commit, Call::kFsync), 5);
  CHECK_EQ(std::count(commit, log.end(), Call::kFsync), 1);
  CHECK_EQ(std::count(log.begin(), commit, Call::kUnlink), 0);
  CHECK_EQ(std::count(commit, log.end(), Call::kUnlink), 4);  // three shards and the journal
}

TEST(a_shard_that_cannot_be_removed_does_not_fail_the_save) {
  const Scene scene(Before::kUsualNames, true, true);
  scene.set_up();
  FaultyFileOps ops({.at = 1, .kind = Call::kUnlink, .error = EPERM, .onwards = true});
  scene.save(ops);
  CHECK_EQ(ops.injected(), 3u);  // the old shards; the journal stays because of them
  CHECK(scene.is_new());
  scene.check_next_save();
}

TEST(a_process_is_killed_before_every_call) {
  for_every_scene(false, kill_before_every_call);
  kill_before_every_call(Scene(Before::kUsualNames, true, true));
}

TEST(a_process_is_killed_before_every_call_while_one_file_replaces_a_set) {
  for_every_one_file_scene([](const OneFileScene& scene) {
    std::uint64_t n = 1;
    for (;; ++n) {
      scene.set_up();
      const bool died = dies_at(n, [&](io::FileOps& ops) { scene.save(ops); });
      const bool is_new = scene.is_new();
      if (!died) {
        CHECK(is_new && !scene.has_set());
        break;
      }
      scene.check_next_save();
    }
    CHECK(n > 15);
    scene.check_no_leftovers(1);
  });
}

TEST(every_call_fails_once_while_one_file_replaces_a_set) {
  for_every_one_file_scene([](const OneFileScene& scene) {
    for (std::uint64_t n = 1;; ++n) {
      scene.set_up();
      const std::size_t descriptors = open_descriptors();
      FaultyFileOps ops({.at = n, .kind = {}, .error = EIO});
      bool succeeded = false;
      bool unchanged = false;
      try {
        scene.save(ops);
        succeeded = true;
      } catch (const Error& error) {
        CHECK_EQ(error.os_errno(), EIO);
        unchanged = says_unchanged(error);
      }
      CHECK_EQ(open_descriptors(), descriptors);
      const bool is_new = scene.is_new();
      CHECK(!succeeded || is_new);
      CHECK(!unchanged || !is_new);
      if (ops.injected() == 0) {
        CHECK(succeeded && !scene.has_set());
        break;
      }
      scene.check_next_save();
    }
    scene.check_no_leftovers(1);
  });
}

TEST(thousands_of_shards_cost_a_constant_number_of_calls_each) {
  const TempDir dir;
  const auto cost = [&](std::size_t shards) {
    const Model model(shards, 1, 1);
    WriteOptions options;
    options.durable = false;
    CountingFileOps ops;
    options.file_ops = &ops;
    model.writer.write_shards(dir / kIndex, 1, options);
    return std::pair(ops.calls, ops.most_open);
  };
  cost(1);
  // Each replaces the set before, so that the removals are counted too.
  const auto [few_calls, few_open] = cost(100);
  cost(1);
  const auto [many_calls, many_open] = cost(2000);
  CHECK_EQ(few_open, many_open);
  CHECK(many_calls <= 20 * few_calls);
  CHECK(many_open < open_descriptors() + 10);
}

RUN_TESTS()
