// A set of shards is saved while every call to the system fails once, and while the process is killed before every call
// to the system. Whatever happens, the index leads to the old set or to the new one, whole; files of others stay; and
// the next save leaves nothing behind but its set.

#include <algorithm>
#include <functional>
#include <map>

#include "check.h"
#include "directory_listing.h"
#include "every_fault.h"
#include "faulty_file_ops.h"
#include "killing_file_ops.h"
#include "shard_models.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

using namespace weightstore;
using directory_listing::names_in;
using directory_listing::open_descriptors;
using faulty::Call;
using faulty::FaultyFileOps;
using faulty::kShort;
using killing::dies_at;
using shard_models::kIndex;
using shard_models::Model;
using test_files::read_file;
using test_files::TempDir;
using test_files::write_file;

namespace {

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
    const io::FileOpsScope scope(ops);
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
  const TempDir dir_{test_files::in_memory()};  // thousands of saves
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
  CHECK(faulty::replace_with_every_fault(scene, error) >= 20);
  scene.check_no_leftovers(true);
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

TEST(thousands_of_shards_cost_a_constant_number_of_calls_each) {
  const TempDir dir(test_files::in_memory());
  const auto cost = [&](std::size_t shards) {
    const Model model(shards, 1, 1);
    WriteOptions options;
    options.durable = false;
    CountingFileOps ops;
    const io::FileOpsScope scope(ops);
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
