// What a save of a set removes of other saves: of those that are over, exactly what they made superfluous.

#include "file/shard_journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "check.h"
#include "file/shard_names.h"
#include "io/locks/liveness.h"
#include "shard_models.h"
#include "test_files.h"
#include "weightstore/error.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

using namespace weightstore;
using shard_models::files_in;
using shard_models::kIndex;
using shard_models::Model;
using test_files::TempDir;
using test_files::write_file;

namespace {

using Names = std::vector<std::string>;
constexpr const char* kId = "1a2b3c4d";

std::string journal_name(const std::string& host, const std::string& id = kId) {
  return ".model." + host + "-" + id + ".weightstore-set";
}

std::string journal_text(const std::string& lines) { return "weightstore shard set 1\n" + lines; }

std::string identity(const std::filesystem::path& path) {
  struct stat status;
  CHECK_EQ(::lstat(path.c_str(), &status), 0);
  return std::to_string(status.st_ino) + " " + std::to_string(status.st_mtim.tv_sec) + "." +
         std::to_string(status.st_mtim.tv_nsec);
}

void save(const TempDir& dir, std::size_t shards = 1) {
  WriteOptions options;
  options.durable = false;
  const io::FileOpsScope scope(io::system_file_ops());  // also from inside of another save
  Model(shards, 10, 3).writer.write_shards(dir / kIndex, 10, options);
}

bool is_there(const TempDir& dir, const std::string& name) { return std::filesystem::exists(dir / name); }

// Runs `body` once, just before the call that it is put in front of.
class InterruptedFileOps final : public io::FileOps {
 public:
  enum class At : std::uint8_t { kRename, kRenameNew, kUnlink };
  InterruptedFileOps(At at, std::function<void()> body) : at_(at), body_(std::move(body)) {}

  int rename(const char* from, const char* to) override {
    if (at_ == At::kRename) run();
    return FileOps::rename(from, to);
  }
  int rename_new(const char* from, const char* to) override {
    if (at_ == At::kRenameNew) run();
    return FileOps::rename_new(from, to);
  }
  int unlink(const char* path) override {
    if (at_ == At::kUnlink) run();
    return FileOps::unlink(path);
  }

 private:
  void run() {
    if (body_) std::exchange(body_, nullptr)();
  }

  At at_;
  std::function<void()> body_;
};

}  // namespace

TEST(names_of_shards_are_told_from_others) {
  CHECK_EQ(usual_shard_name("model", 2, 3), "model-00002-of-00003.safetensors");
  CHECK_EQ(fresh_shard_name("model", kId, 2, 3), "model-1a2b3c4d-00002-of-00003.safetensors");
  for (const char* name : {"model-00002-of-00003.safetensors", "model-1a2b3c4d-00002-of-00003.safetensors",
                           "model-12345678-of-12345678.safetensors", "model-100000-of-100000.safetensors"}) {
    CHECK(is_shard_name("model", name));
  }
  for (const char* name :
       {"model-2-of-3.safetensors", "model-1a2b3c4-00002-of-00003.safetensors", "model-00002-of-00003.safetensors.bak",
        "model-1A2B3C4D-00002-of-00003.safetensors", "model-1a2b3c4d5-00002-of-00003.safetensors",
        "model1a2b3c4d-00002-of-00003.safetensors", "model_1a2b3c4d-00002-of-00003.safetensors",
        "modelx-00002-of-00003.safetensors", "model-+0002-of-00003.safetensors", "model.safetensors", "model", ""}) {
    CHECK(!is_shard_name("model", name));
  }
}

TEST(a_stem_that_makes_names_too_long_is_refused_before_anything_is_touched) {
  const TempDir dir;
  const Model model(2, 10, 3);
  const auto index_of = [&](std::size_t bytes) { return dir / (std::string(bytes, 's') + std::string(kIndexSuffix)); };
  for (const std::size_t bytes : {std::size_t{220}, std::size_t{225}, std::size_t{232}}) {
    const Error error = CHECK_THROWS(Error, model.writer.write_shards(index_of(bytes), 10));
    CHECK(error.code() == ErrorCode::kInvalidArgument);
    for (const std::string& part :
         {std::string(bytes, 's').substr(0, 100), std::to_string(bytes + 36) + " bytes", std::string("255")}) {
      CHECK(std::string(error.what()).find(part) != std::string::npos);
    }
    CHECK_EQ(files_in(dir), Names());
  }
  model.writer.write_shards(index_of(219), 10);
  model.writer.write_shards(index_of(219), 10);
  model.check(Reader::open(index_of(219)));
  CHECK_EQ(files_in(dir).size(), 3u);
}

// Other tools write sets with longer stems: their names have no id.
TEST(one_file_replaces_no_set_whose_stem_is_too_long) {
  const TempDir dir;
  const std::string stem(225, 's');
  const std::string shard = stem + "-00001-of-00001.safetensors";
  const Model model(1, 10, 3);
  model.writer.write_file(dir / shard, Format::kSafetensors);
  write_file(dir / (stem + std::string(kIndexSuffix)),
             R"({"metadata":{"total_size":10},"weight_map":{"t0":")" + shard + R"("}})");
  const Names before = files_in(dir);
  const Error error = CHECK_THROWS(Error, model.writer.write_file_or_shards(dir / (stem + ".safetensors"), 1000));
  CHECK(error.code() == ErrorCode::kInvalidArgument);
  CHECK_EQ(files_in(dir), before);
}

TEST(shards_of_a_dead_save_are_removed) {
  const TempDir dir;
  save(dir);
  write_file(dir / "model-1a2b3c4d-00001-of-00002.safetensors", "half");
  write_file(dir / journal_name(io::host_id()), journal_text("made model-1a2b3c4d-00001-of-00002.safetensors\n"
                                                             "made model-1a2b3c4d-00002-of-00002.safetensors\n"));
  save(dir);
  CHECK_EQ(files_in(dir).size(), 2u);
}

// A save locks its journal right after it made it. It must not get the lock once the journal counts as a dead save's.
TEST(a_journal_that_is_about_to_be_removed_cannot_be_locked) {
  const TempDir dir;
  save(dir);
  const std::filesystem::path journal = dir / journal_name(io::host_id());
  write_file(journal, "");
  int locked = -1;
  InterruptedFileOps ops(InterruptedFileOps::At::kUnlink, [&] {
    const int fd = ::open(journal.c_str(), O_RDWR | O_CLOEXEC);
    locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0 ? 1 : 0;
    ::close(fd);
  });
  settle_journals(site_of_index(dir / kIndex), "", ops);
  CHECK_EQ(locked, 0);
  CHECK(!std::filesystem::exists(journal));
}

TEST(another_hosts_save_is_dead_when_its_journal_is_old) {
  const TempDir dir;
  save(dir);
  const std::string shard = "model-1a2b3c4d-00001-of-00001.safetensors";
  const std::string journal = journal_name("00000000");
  write_file(dir / shard, "half");
  write_file(dir / journal, journal_text("made " + shard + "\n"));
  save(dir);
  CHECK(is_there(dir, shard));
  CHECK(is_there(dir, journal));
  const auto age = io::kAbandonedAfter + std::chrono::minutes(5);
  std::filesystem::last_write_time(dir / journal, std::filesystem::file_time_type::clock::now() - age);
  save(dir);
  CHECK_EQ(files_in(dir).size(), 2u);
}

TEST(a_journal_removes_only_what_is_proven) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "sub");
  const Names kept{"config.json",
                   "model-00001-of-00002.safetensors",
                   "model-00002-of-00002.safetensors",
                   "model-ffffffff-00001-of-00001.safetensors",
                   "other-1a2b3c4d-00001-of-00001.safetensors",
                   "sub/model-1a2b3c4d-00001-of-00001.safetensors"};
  for (const std::string& name : kept) write_file(dir / name, "theirs");
  save(dir);
  const std::string here = identity(dir / kept[0]);
  std::string lines;
  lines += "old " + here + " config.json\n";                                   // no name of ours
  lines += "made model-00001-of-00002.safetensors\n";                          // a usual name needs an identity
  lines += "old 1 2.3 model-00002-of-00002.safetensors\n";                     // another file has the name now
  lines += "made model-ffffffff-00001-of-00001.safetensors\n";                 // the id of another save
  lines += "made other-1a2b3c4d-00001-of-00001.safetensors\n";                 // another set
  lines += "made sub/model-1a2b3c4d-00001-of-00001.safetensors\n";             // not beside the index
  lines += "made ../" + dir.path().filename().string() + "/config.json\n";     // nor this
  lines += "nonsense\n\nmade\nold\nold x\nmade model-1a2b3c4d-00001-of-0000";  // and a line that was cut
  write_file(dir / journal_name(io::host_id()), journal_text(lines));
  // Nothing in these makes sense at all.
  write_file(dir / journal_name(io::host_id(), "00000001"), "");
  write_file(dir / journal_name(io::host_id(), "00000002"), "made model-00000002-00001-of-00001.safetensors\n");
  write_file(dir / "model-00000002-00001-of-00001.safetensors", "theirs");
  save(dir);
  for (const std::string& name : kept) CHECK_EQ(test_files::read_file(dir / name), "theirs");
  CHECK(is_there(dir, "model-00000002-00001-of-00001.safetensors"));
}

TEST(without_an_index_old_shards_stay) {
  const TempDir dir;
  const std::string shard = "model-00001-of-00009.safetensors";
  write_file(dir / shard, "whole");
  write_file(dir / journal_name(io::host_id()), journal_text("old " + identity(dir / shard) + " " + shard + "\n"));
  save(dir);
  CHECK(is_there(dir, shard));
}

// One file replaces a set. The process that removes the set may die before or after it has removed the index.
TEST(shards_of_a_removed_set_are_removed_unless_an_index_names_them) {
  for (const bool has_index : {false, true}) {
    const TempDir dir;
    save(dir, 2);
    const Names set = files_in(dir);
    const std::string shard = "model-00001-of-00002.safetensors";
    const std::string other = "model-00002-of-00002.safetensors";
    const std::string lines = "removed " + identity(dir / shard) + " " + shard + "\n" + "removed 1 2.3 " + other + "\n";
    write_file(dir / journal_name(io::host_id()), journal_text(lines));
    if (!has_index) std::filesystem::remove(dir / kIndex);
    settle_journals(site_of_index(dir / kIndex), "", io::system_file_ops());
    // The other file is not the one that the journal means.
    CHECK_EQ(files_in(dir), has_index ? set : Names{other});
  }
}

TEST(a_save_that_was_overtaken_while_it_wrote_is_the_last_one) {
  const TempDir dir;
  save(dir, 2);
  const Model slow(3, 10, 77);
  WriteOptions options;
  options.durable = false;
  bool done = false;
  options.progress = [&](std::uint64_t, std::uint64_t, std::string_view) {
    if (!std::exchange(done, true)) save(dir, 5);
    return true;
  };
  slow.writer.write_shards(dir / kIndex, 10, options);
  slow.check(Reader::open(dir / kIndex));
  CHECK_EQ(files_in(dir).size(), 4u);
}

TEST(a_save_that_was_overtaken_at_its_commit_removes_the_other_set) {
  const TempDir dir;
  save(dir, 2);
  const Model slow(3, 10, 77);
  InterruptedFileOps ops(InterruptedFileOps::At::kRename, [&] { save(dir, 5); });
  WriteOptions options;
  options.durable = false;
  const io::FileOpsScope scope(ops);
  slow.writer.write_shards(dir / kIndex, 10, options);
  slow.check(Reader::open(dir / kIndex));
  CHECK_EQ(files_in(dir).size(), 4u);
}

TEST(of_two_first_saves_one_gets_the_usual_names) {
  const TempDir dir;
  const Model slow(2, 10, 77);
  // The other save takes the second name only, so that the first has to be given back.
  InterruptedFileOps ops(InterruptedFileOps::At::kRenameNew,
                         [&] { write_file(dir / "model-00002-of-00002.safetensors", "theirs"); });
  WriteOptions options;
  options.durable = false;
  const io::FileOpsScope scope(ops);
  slow.writer.write_shards(dir / kIndex, 10, options);
  slow.check(Reader::open(dir / kIndex));
  CHECK_EQ(test_files::read_file(dir / "model-00002-of-00002.safetensors"), "theirs");
  CHECK(!is_there(dir, "model-00001-of-00002.safetensors"));
  CHECK_EQ(files_in(dir).size(), 4u);

  const TempDir other;
  InterruptedFileOps again(InterruptedFileOps::At::kRenameNew, [&] { save(other, 2); });
  const io::FileOpsScope scope_again(again);
  options.overwrite = false;
  CHECK(CHECK_THROWS(Error, slow.writer.write_shards(other / kIndex, 10, options)).code() == ErrorCode::kConflict);
  CHECK_EQ(files_in(other).size(), 3u);
  Model(2, 10, 3).check(Reader::open(other / kIndex));
}

TEST(saves_at_the_same_time_leave_one_set) {
  const TempDir dir;
  WriteOptions options;
  options.durable = false;
  std::atomic<int> running = 3;
  std::vector<std::thread> writers;
  for (std::uint32_t writer = 1; writer <= 3; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 20; ++i) Model(writer, 10, writer).writer.write_shards(dir / kIndex, 10, options);
      --running;
    });
  }
  const auto check_whole = [&] {
    const Reader reader = Reader::open(dir / kIndex);
    const std::size_t count = reader.table().size();
    Model(count, 10, static_cast<std::uint32_t>(count)).check(reader);
  };
  while (running > 0) {
    if (is_there(dir, kIndex)) check_whole();
  }
  for (std::thread& writer : writers) writer.join();
  check_whole();
  save(dir, 4);
  CHECK_EQ(files_in(dir).size(), 5u);
}

RUN_TESTS()
