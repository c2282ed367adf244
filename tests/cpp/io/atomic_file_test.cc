#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "check.h"
#include "directory_listing.h"
#include "faulty_file_ops.h"
#include "io/locks/liveness.h"
#include "test_files.h"
#include "weightstore/error.h"

using namespace weightstore;
using directory_listing::names_in;
using faulty::Call;
using faulty::FaultyFileOps;
using io::AtomicFile;
using test_files::read_file;
using test_files::TempDir;
using test_files::write_file;

namespace {

using Names = std::vector<std::string>;

void put(AtomicFile& file, const std::string& text) {
  CHECK_EQ(::pwrite(file.fd(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
}

void save(const std::filesystem::path& path, const std::string& text, const AtomicFile::Options& options = {}) {
  AtomicFile file(path, options, io::system_file_ops());
  put(file, text);
  file.commit();
}

mode_t mode_of(const std::filesystem::path& path) {
  struct stat status;
  CHECK_EQ(::lstat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

Error save_error(const std::filesystem::path& path, const AtomicFile::Options& options = {}) {
  return CHECK_THROWS(Error, save(path, "text", options));
}

bool says(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

class Umask {
 public:
  explicit Umask(mode_t mask) : before_(::umask(mask)) {}
  ~Umask() { ::umask(before_); }

 private:
  mode_t before_;
};

// Runs `body` in a child that is then killed where it stands.
template <class Body>
void in_killed_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    body();
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK(WIFSIGNALED(status));
}

}  // namespace

TEST(a_file_appears_when_it_is_committed) {
  const TempDir dir;
  AtomicFile file(dir / "f", {}, io::system_file_ops());
  put(file, "new");
  CHECK(!std::filesystem::exists(dir / "f"));
  CHECK_EQ(names_in(dir.path()).size(), 1u);  // the temporary file
  file.commit();
  CHECK_EQ(read_file(dir / "f"), "new");
  CHECK(names_in(dir.path()) == Names{"f"});
  CHECK_THROWS(Error, file.commit());
}

TEST(without_commit_nothing_changes) {
  const TempDir dir;
  write_file(dir / "f", "old");
  {
    AtomicFile file(dir / "f", {}, io::system_file_ops());
    put(file, "new");
  }
  CHECK_EQ(read_file(dir / "f"), "old");
  CHECK(names_in(dir.path()) == Names{"f"});
}

TEST(a_relative_path_is_beside_the_working_directory) {
  const TempDir dir;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  save("f", "new");
  std::filesystem::current_path(before);
  CHECK_EQ(read_file(dir / "f"), "new");
}

TEST(a_new_file_has_the_mode_of_the_umask) {
  const TempDir dir;
  {
    const Umask mask(027);
    save(dir / "f", "new");
  }
  CHECK_EQ(mode_of(dir / "f"), 0640u);
}

TEST(a_replaced_file_keeps_its_mode) {
  const TempDir dir;
  const Umask mask(077);
  for (const mode_t mode : {0600, 0644, 0666, 0755, 0400}) {
    write_file(dir / "f", "old");
    CHECK_EQ(::chmod((dir / "f").c_str(), mode), 0);
    save(dir / "f", "new");
    CHECK_EQ(mode_of(dir / "f"), mode);
    CHECK_EQ(read_file(dir / "f"), "new");
    std::filesystem::remove(dir / "f");
  }
}

TEST(a_symlink_stays_and_its_target_is_replaced) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "blobs");
  write_file(dir / "blobs/b", "old");
  std::filesystem::create_symlink("blobs/b", dir / "middle");
  std::filesystem::create_symlink(dir / "middle", dir / "link");
  save(dir / "link", "new");
  CHECK(std::filesystem::is_symlink(dir / "link"));
  CHECK(std::filesystem::is_symlink(dir / "middle"));
  CHECK_EQ(read_file(dir / "blobs/b"), "new");
  CHECK(names_in(dir / "blobs") == Names{"b"});
}

TEST(a_dangling_symlink_gets_its_target) {
  const TempDir dir;
  std::filesystem::create_symlink("absent", dir / "link");
  save(dir / "link", "new");
  CHECK(std::filesystem::is_symlink(dir / "link"));
  CHECK_EQ(read_file(dir / "absent"), "new");
}

TEST(symlinks_in_a_circle_are_refused) {
  const TempDir dir;
  std::filesystem::create_symlink("b", dir / "a");
  std::filesystem::create_symlink("a", dir / "b");
  CHECK_EQ(save_error(dir / "a").os_errno(), ELOOP);
}

TEST(targets_that_cannot_be_are_refused_by_name) {
  const TempDir dir;
  CHECK_EQ(save_error(dir / "absent/f").os_errno(), ENOENT);
  CHECK(says(save_error(dir / "absent/f"), "must exist"));
  write_file(dir / "file", "");
  CHECK_EQ(save_error(dir / "file/f").os_errno(), ENOTDIR);
  std::filesystem::create_directory(dir / "folder");
  CHECK_EQ(save_error(dir / "folder").os_errno(), EISDIR);
  CHECK_EQ(save_error(dir / "folder/").code(), ErrorCode::kInvalidArgument);
  CHECK_EQ(::mkfifo((dir / "fifo").c_str(), 0600), 0);
  CHECK(says(save_error(dir / "fifo"), "a FIFO"));
  CHECK_EQ(save_error(dir / std::string(300, 'n')).os_errno(), ENAMETOOLONG);
  CHECK(save_error("/dev/null").code() == ErrorCode::kIo);
  CHECK(names_in(dir.path()) == (Names{"fifo", "file", "folder"}));
}

TEST(names_may_be_as_long_as_the_system_allows) {
  const TempDir dir;
  save(dir / std::string(255, 'n'), "new");
  CHECK_EQ(read_file(dir / std::string(255, 'n')), "new");
}

TEST(an_existing_file_is_a_conflict_when_asked_so) {
  const TempDir dir;
  save(dir / "f", "first", {.durable = true, .overwrite = false});
  const Error error = save_error(dir / "f", {.durable = true, .overwrite = false});
  CHECK(error.code() == ErrorCode::kConflict);
  CHECK_EQ(error.os_errno(), EEXIST);
  CHECK_EQ(read_file(dir / "f"), "first");
}

TEST(a_file_that_appears_meanwhile_is_a_conflict_too) {
  const TempDir dir;
  AtomicFile file(dir / "f", {.durable = false, .overwrite = false}, io::system_file_ops());
  put(file, "new");
  write_file(dir / "f", "other");
  const Error error = CHECK_THROWS(Error, file.commit());
  CHECK(error.code() == ErrorCode::kConflict);
  CHECK_EQ(read_file(dir / "f"), "other");
  CHECK(names_in(dir.path()) == Names{"f"});
}

TEST(the_temporary_of_a_dead_writer_is_removed) {
  const TempDir dir;
  in_killed_child([&] {
    auto* file = new AtomicFile(dir / "f", {}, io::system_file_ops());
    put(*file, "half");
  });
  CHECK_EQ(names_in(dir.path()).size(), 1u);
  save(dir / "other", "new");
  CHECK(names_in(dir.path()) == Names{"other"});
}

TEST(the_temporary_of_a_living_writer_is_kept) {
  const TempDir dir;
  AtomicFile mine(dir / "f", {}, io::system_file_ops());
  put(mine, "mine");
  save(dir / "f", "theirs");
  CHECK_EQ(names_in(dir.path()).size(), 2u);
  CHECK_EQ(read_file(dir / "f"), "theirs");
  mine.commit();
  CHECK_EQ(read_file(dir / "f"), "mine");
  CHECK(names_in(dir.path()) == Names{"f"});
}

TEST(other_files_are_never_taken_for_temporaries) {
  const TempDir dir;
  const std::string ending = "." + io::host_id() + "-0123456789abcdef.weightstore-tmp";
  const Names names{".a.0123456789abcdef.tmp", ".f." + io::host_id() + "-0123456789ABCDEF.weightstore-tmp",
                    ".f.weightstore-tmp", "f" + ending, ".." + io::host_id() + "-0123456789abcdef.weightstore-tmp"};
  for (const std::string& name : names) write_file(dir / name, "");
  write_file(dir / "kept", "");
  std::filesystem::create_symlink("kept", dir / (".f" + ending));
  std::filesystem::create_directory(dir / (".g" + ending));
  CHECK_EQ(::mkfifo((dir / (".h" + ending)).c_str(), 0600), 0);
  const Names before = names_in(dir.path());
  io::remove_stale_temporaries(dir.path(), io::system_file_ops());
  CHECK(names_in(dir.path()) == before);
  write_file(dir / (".i" + ending), "");
  io::remove_stale_temporaries(dir.path(), io::system_file_ops());
  CHECK(names_in(dir.path()) == before);
}

TEST(temporaries_of_other_hosts_are_removed_only_when_they_are_old) {
  const TempDir dir;
  // The second is what earlier releases called theirs.
  for (const char* name : {".f.00000000-0123456789abcdef.weightstore-tmp", ".f.0123456789abcdef.weightstore-tmp"}) {
    write_file(dir / name, "half");
    save(dir / "g", "new");
    CHECK(std::filesystem::exists(dir / name));
    std::filesystem::last_write_time(
        dir / name, std::filesystem::file_time_type::clock::now() - io::kAbandonedAfter - std::chrono::minutes(5));
    save(dir / "g", "new");
    CHECK(names_in(dir.path()) == Names{"g"});
  }
}

TEST(cleaning_a_directory_that_is_not_there_does_nothing) {
  io::remove_stale_temporaries("/nonexistent/directory", io::system_file_ops());
}

namespace {

// Cleans up the directory just after each creation, before the creator has its lock.
class EagerCleaner final : public io::FileOps {
 public:
  explicit EagerCleaner(std::string directory) : directory_(std::move(directory)) {}
  int open(const char* path, int flags, mode_t mode) override {
    const int fd = FileOps::open(path, flags, mode);
    if ((flags & O_CREAT) != 0 && cleanings_ < 3) {
      ++cleanings_;
      io::remove_stale_temporaries(directory_, io::system_file_ops());
    }
    return fd;
  }
  int cleanings() const { return cleanings_; }

 private:
  std::string directory_;
  int cleanings_ = 0;
};

}  // namespace

TEST(a_temporary_lost_before_it_was_locked_is_made_again) {
  const TempDir dir;
  EagerCleaner ops(dir.path());
  AtomicFile file(dir / "f", {}, ops);
  CHECK_EQ(ops.cleanings(), 3);
  put(file, "new");
  file.commit();
  CHECK_EQ(read_file(dir / "f"), "new");
  CHECK(names_in(dir.path()) == Names{"f"});
}

TEST(file_systems_without_locks_are_served) {
  const TempDir dir;
  FaultyFileOps ops({.at = 1, .kind = Call::kFlock, .error = EOPNOTSUPP, .onwards = true});
  AtomicFile file(dir / "f", {}, ops);
  put(file, "new");
  AtomicFile other(dir / "g", {}, ops);
  file.commit();
  CHECK_EQ(read_file(dir / "f"), "new");
}

TEST(a_durable_commit_syncs_file_then_renames_then_syncs_directory) {
  const TempDir dir;
  FaultyFileOps ops;
  AtomicFile file(dir / "f", {}, ops);
  const std::size_t before = ops.log().size();
  file.commit();
  const auto log = ops.log();
  const std::vector<Call> tail(log.begin() + static_cast<std::ptrdiff_t>(before), log.end());
  CHECK((tail == std::vector<Call>{Call::kOpen, Call::kFsync, Call::kDup, Call::kClose, Call::kRename, Call::kClose,
                                   Call::kFsync, Call::kClose}));
}

TEST(without_durable_nothing_is_synced) {
  const TempDir dir;
  FaultyFileOps ops;
  AtomicFile file(dir / "f", {.durable = false, .overwrite = true}, ops);
  file.commit();
  for (const Call call : ops.log()) CHECK(call != Call::kFsync);
}

TEST(a_failed_sync_is_not_tried_again) {
  const TempDir dir;
  write_file(dir / "f", "old");
  FaultyFileOps ops({.at = 1, .kind = Call::kFsync, .error = EIO});
  AtomicFile file(dir / "f", {}, ops);
  put(file, "new");
  CHECK_EQ(CHECK_THROWS(Error, file.commit()).os_errno(), EIO);
  CHECK_EQ(ops.calls(), 1u);
  CHECK_EQ(read_file(dir / "f"), "old");
  CHECK(names_in(dir.path()) == Names{"f"});
  CHECK_THROWS(Error, file.commit());
}

TEST(an_error_of_close_counts) {
  const TempDir dir;
  write_file(dir / "f", "old");
  FaultyFileOps counting;
  {
    AtomicFile(dir / "f", {}, counting).commit();
  }
  // Which close is the file's: the first after its fsync.
  std::uint64_t closes = 0;
  for (const Call call : counting.log()) {
    if (call == Call::kClose) ++closes;
    if (call == Call::kFsync) break;
  }
  write_file(dir / "f", "old");
  FaultyFileOps ops({.at = closes + 1, .kind = Call::kClose, .error = EDQUOT});
  AtomicFile file(dir / "f", {}, ops);
  put(file, "new");
  CHECK_EQ(CHECK_THROWS(Error, file.commit()).os_errno(), EDQUOT);
  CHECK_EQ(read_file(dir / "f"), "old");
  CHECK(names_in(dir.path()) == Names{"f"});
}

RUN_TESTS()
