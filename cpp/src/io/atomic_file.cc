#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "io/checked_io.h"
#include "io/file_attributes.h"
#include "io/follow_links.h"
#include "io/locks/fork_closed.h"
#include "io/temporaries.h"

namespace weightstore::io {
namespace {

constexpr int kMaxAttempts = 100;

int open_directory(const std::string& directory, FileOps& ops) {
  return retry_interrupted([&] { return ops.open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0); });
}

bool sync_and_close_directory(int fd, FileOps& ops) {
  const int synced = retry_interrupted([&] { return ops.fsync(fd); });
  const int error = errno;
  close_quietly(ops, fd);
  errno = error;
  // Some file systems cannot sync directories and keep their names safe in other ways.
  return synced == 0 || error == EINVAL || error == EOPNOTSUPP;
}

}  // namespace

bool sync_directory(const std::string& directory, FileOps& ops) {
  const int fd = open_directory(directory, ops);
  return fd >= 0 && sync_and_close_directory(fd, ops);
}

void remove_name(const std::string& path, bool durable, FileOps& ops) {
  if (retry_interrupted([&] { return ops.unlink(path.c_str()); }) != 0) {
    if (errno == ENOENT) return;
    throw io_error(errno, "the new files are complete, but this old one cannot be removed", path);
  }
  const std::string directory = std::filesystem::path(path).parent_path().native();
  if (durable && !sync_directory(directory.empty() ? "." : directory, ops)) {
    throw io_error(errno,
                   "the new files are complete, but this old one may come back after a power failure: cannot sync '" +
                       directory + "'",
                   path);
  }
}

AtomicFile::AtomicFile(const std::filesystem::path& target, const Options& options, FileOps& ops)
    : ops_(ops), options_(options) {
  const std::filesystem::path resolved = follow_links(target, ops_);
  target_ = resolved.native();
  directory_ = resolved.parent_path().empty() ? "." : resolved.parent_path().native();
  if (!resolved.has_filename()) {
    throw Error(ErrorCode::kInvalidArgument, "the path names no file").in_file(target.native());
  }
  check_directory();
  const auto replaced = find_replaced();
  remove_stale_temporaries(directory_, ops_);
  // Nobody shall open the new file in the moment before it is as closed as the old one.
  create_temporary(replaced ? 0600 : 0666);
  if (!replaced) return;
  try {
    take_attributes(fd_, target_, *replaced, target_, ops_);
  } catch (...) {
    abandon();
    throw;
  }
}

AtomicFile::~AtomicFile() { abandon(); }

void AtomicFile::check_directory() const {
  struct stat status;
  if (retry_interrupted([&] { return ops_.stat(directory_.c_str(), &status); }) != 0) {
    throw io_error(errno, "the directory '" + directory_ + "' must exist before a file can be saved in it", target_);
  }
  if (!S_ISDIR(status.st_mode)) {
    throw io_error(ENOTDIR, "'" + directory_ + "' must be a directory to save a file in it", target_);
  }
}

std::optional<struct stat> AtomicFile::find_replaced() const {
  struct stat status;
  if (retry_interrupted([&] { return ops_.lstat(target_.c_str(), &status); }) != 0) {
    if (errno == ENOENT) return std::nullopt;
    throw io_error(errno, "cannot look at the target", target_);
  }
  if (S_ISDIR(status.st_mode)) {
    throw Error(ErrorCode::kIo, "this is a directory; give the path of a file inside it")
        .in_file(target_)
        .equivalent_errno(EISDIR);
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kIo,
                "this is " + std::string(kind_of_file(status.st_mode)) + "; only a regular file can be replaced")
        .in_file(target_)
        .equivalent_errno(EINVAL);
  }
  if (!options_.overwrite) {
    throw Error(ErrorCode::kConflict, "the file exists; allow overwriting or choose another name")
        .in_file(target_)
        .equivalent_errno(EEXIST);
  }
  return status;
}

void AtomicFile::create_temporary(mode_t mode) {
  const std::string name = std::filesystem::path(target_).filename().native();
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    temporary_ = directory_ + "/" + temporary_name(name);
    fd_ = open_fork_closed(temporary_, kFlags, mode, ops_);
    if (fd_ < 0) {
      const int error = errno;
      temporary_.clear();
      if (error == EEXIST) continue;
      throw io_error(error, "cannot create a temporary file in '" + directory_ + "'", target_);
    }
    if (lock_temporary()) return;
    abandon();
  }
  throw Error(ErrorCode::kConflict, "other processes keep removing the temporary file; is another save running here?")
      .in_file(target_);
}

// False when somebody who cleans up got hold of the file before us.
bool AtomicFile::lock_temporary() {
  if (retry_interrupted([&] { return ops_.flock(fd_, LOCK_EX | LOCK_NB); }) != 0) {
    const int error = errno;
    if (error == EWOULDBLOCK) return false;
    // Without locks here, nobody can take ours for a dead writer's either.
    if (error == EOPNOTSUPP || error == ENOSYS || error == ENOLCK || error == EINVAL) return true;
    abandon();
    throw io_error(error, "cannot lock the temporary file", target_);
  }
  return names_open_file(temporary_, fd_, ops_);
}

void AtomicFile::commit() {
  if (fd_ < 0 || is_parents()) throw Error(ErrorCode::kInvalidArgument, "nothing to commit").in_file(target_);
  int directory = -1;
  try {
    if (options_.durable) {
      // Opened before the rename, so that one cause less can leave the new file in place and unsynced.
      directory = open_directory(directory_, ops_);
      if (directory < 0) throw io_error(errno, "cannot open '" + directory_ + "' to sync it", target_);
      // Again after a signal only: an interrupted fsync has not dropped anything.
      if (retry_interrupted([&] { return ops_.fsync(fd_); }) != 0) {
        throw io_error(errno, "cannot sync the new file; what was there before is unchanged", target_);
      }
    }
    publish();
  } catch (...) {
    close_quietly(ops_, directory);
    abandon();
    throw;
  }
  if (directory >= 0 && !sync_and_close_directory(directory, ops_)) {
    throw io_error(
        errno,
        "the new file is in place, but its name may be lost in a power failure: cannot sync '" + directory_ + "'",
        target_);
  }
}

void AtomicFile::publish() {
  // A copy of the descriptor keeps the lock while the first is closed: closing may report an error, and the file must
  // not look abandoned before it has its name.
  const int lock = duplicate_fork_closed(fd_, ops_);
  if (lock < 0) throw io_error(errno, "cannot keep the lock on the new file", target_);
  const int closed = close_fork_closed(fd_, ops_);
  fd_ = lock;
  // An interrupted close(2) has closed on Linux; a second one could hit somebody else's file.
  if (closed != 0 && errno != EINTR) {
    throw io_error(errno, "cannot close the new file; what was there before is unchanged", target_);
  }
  const int renamed = retry_interrupted([&] {
    return options_.overwrite ? ops_.rename(temporary_.c_str(), target_.c_str())
                              : ops_.rename_new(temporary_.c_str(), target_.c_str());
  });
  if (renamed != 0) {
    if (errno == EEXIST && !options_.overwrite) {
      throw Error(ErrorCode::kConflict, "somebody else created the file meanwhile; it was left alone")
          .in_file(target_)
          .equivalent_errno(EEXIST);
    }
    throw io_error(errno, "cannot give the new file its name", target_);
  }
  published_ = true;
  temporary_.clear();
  close_fork_closed(fd_, ops_);
  fd_ = -1;
}

void AtomicFile::abandon() noexcept {
  if (fd_ < 0 || is_parents()) return;
  // The name goes first: as long as it is there, the lock shall be.
  if (!temporary_.empty()) ops_.unlink(temporary_.c_str());
  temporary_.clear();
  close_fork_closed(fd_, ops_);
  fd_ = -1;
}

}  // namespace weightstore::io
