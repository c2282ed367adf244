#include "io/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstdint>
#include <system_error>

#include "io/checked_io.h"

namespace weightstore::io {
namespace {

constexpr std::string_view kSuffix = ".weightstore-tmp";
constexpr std::size_t kRandomDigits = 16;
constexpr std::size_t kNameMax = 255;
constexpr int kMaxLinks = 40;
constexpr int kMaxAttempts = 100;

bool is_temporary_name(std::string_view name) {
  if (name.size() < 1 + 1 + kRandomDigits + kSuffix.size() || !name.starts_with('.') || !name.ends_with(kSuffix)) {
    return false;
  }
  name.remove_suffix(kSuffix.size());
  const std::string_view digits = name.substr(name.size() - kRandomDigits);
  return name[name.size() - kRandomDigits - 1] == '.' &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool same_file(int fd, const std::string& path, FileOps& ops) {
  struct stat opened;
  struct stat named;
  return retry_interrupted([&] { return ops.fstat(fd, &opened); }) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// A writer that lives holds its lock from just after the creation to just after the rename. One that we surprise before
// it has the lock finds its file gone and makes another.
void remove_if_stale(const std::string& path, FileOps& ops) {
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const int fd = retry_interrupted([&] { return ops.open(path.c_str(), kFlags, 0); });
  if (fd < 0) return;
  struct stat status;
  if (ops.fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && ops.flock(fd, LOCK_EX | LOCK_NB) == 0 &&
      same_file(fd, path, ops)) {
    ops.unlink(path.c_str());
  }
  close_quietly(ops, fd);
}

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

std::string random_digits() {
  std::uint64_t bits = 0;
  const ssize_t n = retry_interrupted([&] { return ::getrandom(&bits, sizeof bits, 0); });
  if (n != static_cast<ssize_t>(sizeof bits)) throw Error(ErrorCode::kIo, "no random numbers").with_errno(errno);
  std::string digits(kRandomDigits, '0');
  for (char& digit : digits) {
    digit = "0123456789abcdef"[bits & 15];
    bits >>= 4;
  }
  return digits;
}

std::filesystem::path follow_links(std::filesystem::path path) {
  const std::filesystem::path first = path;
  for (int hops = 0; hops < kMaxLinks; ++hops) {
    std::error_code error;
    const auto status = std::filesystem::symlink_status(path, error);
    if (error && error != std::errc::no_such_file_or_directory) {
      throw io_error(error.value(), "cannot look at the target", path.string());
    }
    if (status.type() != std::filesystem::file_type::symlink) return path;
    const auto next = std::filesystem::read_symlink(path, error);
    if (error) throw io_error(error.value(), "cannot read the symlink", path.string());
    path = path.parent_path() / next;  // `next` alone when it is absolute
  }
  throw io_error(ELOOP, "cannot follow the symlink", first.string());
}

bool sync_directory(const std::string& directory, FileOps& ops) {
  const int fd = open_directory(directory, ops);
  return fd >= 0 && sync_and_close_directory(fd, ops);
}

void remove_stale_temporaries(const std::string& directory, FileOps& ops) noexcept {
  try {
    std::error_code error;
    for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
      if (is_temporary_name(it->path().filename().native())) remove_if_stale(it->path().native(), ops);
    }
  } catch (...) {
  }
}

AtomicFile::AtomicFile(const std::filesystem::path& target, const Options& options, FileOps& ops)
    : ops_(ops), options_(options) {
  const std::filesystem::path resolved = follow_links(target);
  target_ = resolved.native();
  directory_ = resolved.parent_path().empty() ? "." : resolved.parent_path().native();
  if (!resolved.has_filename()) {
    throw Error(ErrorCode::kInvalidArgument, "the path names no file").in_file(target.native());
  }
  check_directory();
  const auto mode = mode_of_replaced();
  remove_stale_temporaries(directory_, ops_);
  // Nobody shall open the new file in the moment before it is as closed as the old one.
  create_temporary(mode ? 0600 : 0666);
  if (!mode) return;
  struct stat status;
  if (retry_interrupted([&] { return ops_.fstat(fd_, &status); }) == 0 && (status.st_mode & 07777) == *mode) return;
  if (retry_interrupted([&] { return ops_.fchmod(fd_, *mode); }) != 0) {
    const int error = errno;
    abandon();
    throw io_error(error, "cannot give the new file the mode of the one it replaces", target_);
  }
}

AtomicFile::~AtomicFile() { abandon(); }

void AtomicFile::check_directory() const {
  struct stat status;
  if (::stat(directory_.c_str(), &status) != 0) {
    throw io_error(errno, "the directory '" + directory_ + "' must exist before a file can be saved in it", target_);
  }
  if (!S_ISDIR(status.st_mode)) {
    throw io_error(ENOTDIR, "'" + directory_ + "' must be a directory to save a file in it", target_);
  }
}

std::optional<mode_t> AtomicFile::mode_of_replaced() const {
  struct stat status;
  if (::lstat(target_.c_str(), &status) != 0) {
    if (errno == ENOENT) return std::nullopt;
    throw io_error(errno, "cannot look at the target", target_);
  }
  if (S_ISDIR(status.st_mode)) {
    throw Error(ErrorCode::kIo, "this is a directory; give the path of a file inside it")
        .in_file(target_)
        .with_errno(EISDIR);
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kIo,
                "this is " + std::string(kind_of_file(status.st_mode)) + "; only a regular file can be replaced")
        .in_file(target_)
        .with_errno(EINVAL);
  }
  if (!options_.overwrite) {
    throw Error(ErrorCode::kConflict, "the file exists; allow overwriting or choose another name")
        .in_file(target_)
        .with_errno(EEXIST);
  }
  return status.st_mode & 07777;
}

void AtomicFile::create_temporary(mode_t mode) {
  const std::string name = std::filesystem::path(target_).filename().native();
  const std::string stem = name.substr(0, kNameMax - kSuffix.size() - kRandomDigits - 2);
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    temporary_ = directory_ + "/." + stem + "." + random_digits() + std::string(kSuffix);
    fd_ = retry_interrupted([&] { return ops_.open(temporary_.c_str(), kFlags, mode); });
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
  return same_file(fd_, temporary_, ops_);
}

void AtomicFile::commit() {
  if (fd_ < 0) throw Error(ErrorCode::kInvalidArgument, "nothing to commit").in_file(target_);
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
  const int lock = retry_interrupted([&] { return ::fcntl(fd_, F_DUPFD_CLOEXEC, 0); });
  if (lock < 0) throw io_error(errno, "cannot keep the lock on the new file", target_);
  const int closed = ops_.close(fd_);
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
          .with_errno(EEXIST);
    }
    throw io_error(errno, "cannot give the new file its name", target_);
  }
  temporary_.clear();
  close_quietly(ops_, fd_);
  fd_ = -1;
}

void AtomicFile::abandon() noexcept {
  if (fd_ < 0) return;
  // The name goes first: as long as it is there, the lock shall be.
  if (!temporary_.empty()) ops_.unlink(temporary_.c_str());
  temporary_.clear();
  close_quietly(ops_, fd_);
  fd_ = -1;
}

}  // namespace weightstore::io
