#pragma once

// A file system that fails when told to.

#include <cerrno>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "io/file_ops.h"

namespace faulty {

enum class Call : std::uint8_t {
  kOpen,
  kClose,
  kFstat,
  kPread,
  kPwrite,
  kFallocate,
  kFtruncate,
  kFchmod,
  kFchown,
  kFsync,
  kFlock,
  kRename,
  kUnlink,
};

// What happens at the chosen call. A failing call does nothing, except close(), which closes before it fails, as Linux
// does. A short call moves about half of what was asked for.
struct Fault {
  std::uint64_t at = 0;      // the at-th call, counted from 1; 0: none
  std::optional<Call> kind;  // counts calls of this kind only
  int error = EIO;           // 0: a short count from pread() or pwrite(); other calls pass
  bool onwards = false;      // every call from there on
};

// Counts all calls, fails the chosen ones, passes the others to the operating system. Thread-safe.
class FaultyFileOps final : public weightstore::io::FileOps {
 public:
  explicit FaultyFileOps(Fault fault = {}) : fault_(fault) {}

  // Calls so far that could have been chosen.
  std::uint64_t calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  // Calls that were made to fail or to be short.
  std::uint64_t injected() const {
    const std::lock_guard lock(mutex_);
    return injected_;
  }
  // Every call so far, in order.
  std::vector<Call> log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  int open(const char* path, int flags, mode_t mode) override {
    return fails(Call::kOpen) ? -1 : FileOps::open(path, flags, mode);
  }
  int close(int fd) override {
    const bool failing = fails(Call::kClose);
    const int result = FileOps::close(fd);
    if (!failing) return result;
    errno = fault_.error;
    return -1;
  }
  int fstat(int fd, struct stat* out) override { return fails(Call::kFstat) ? -1 : FileOps::fstat(fd, out); }
  ssize_t pread(int fd, void* out, std::size_t length, off_t offset) override {
    if (const auto now = choose(Call::kPread)) {
      if (*now != 0) return fail(*now);
      length = (length + 1) / 2;
    }
    return FileOps::pread(fd, out, length, offset);
  }
  ssize_t pwrite(int fd, const void* data, std::size_t length, off_t offset) override {
    if (const auto now = choose(Call::kPwrite)) {
      if (*now != 0) return fail(*now);
      length = (length + 1) / 2;
    }
    return FileOps::pwrite(fd, data, length, offset);
  }
  ssize_t pwritev(int fd, const struct iovec* pieces, int count, off_t offset) override {
    if (const auto now = choose(Call::kPwrite)) {
      if (*now != 0) return fail(*now);
      return FileOps::pwrite(fd, pieces[0].iov_base, (pieces[0].iov_len + 1) / 2, offset);
    }
    return FileOps::pwritev(fd, pieces, count, offset);
  }
  int fallocate(int fd, off_t offset, off_t length) override {
    return fails(Call::kFallocate) ? -1 : FileOps::fallocate(fd, offset, length);
  }
  int ftruncate(int fd, off_t length) override { return fails(Call::kFtruncate) ? -1 : FileOps::ftruncate(fd, length); }
  int fchmod(int fd, mode_t mode) override { return fails(Call::kFchmod) ? -1 : FileOps::fchmod(fd, mode); }
  int fchown(int fd, uid_t owner, gid_t group) override {
    return fails(Call::kFchown) ? -1 : FileOps::fchown(fd, owner, group);
  }
  int fsync(int fd) override { return fails(Call::kFsync) ? -1 : FileOps::fsync(fd); }
  int flock(int fd, int operation) override { return fails(Call::kFlock) ? -1 : FileOps::flock(fd, operation); }
  int rename(const char* from, const char* to) override {
    return fails(Call::kRename) ? -1 : FileOps::rename(from, to);
  }
  int rename_new(const char* from, const char* to) override {
    return fails(Call::kRename) ? -1 : FileOps::rename_new(from, to);
  }
  int unlink(const char* path) override { return fails(Call::kUnlink) ? -1 : FileOps::unlink(path); }

 private:
  static int fail(int error) {
    errno = error;
    return -1;
  }

  bool fails(Call call) {
    const auto error = choose(call);
    if (!error || *error == 0) return false;
    errno = *error;
    return true;
  }

  // The error to inject now, if any.
  std::optional<int> choose(Call call) {
    const std::lock_guard lock(mutex_);
    log_.push_back(call);
    if (fault_.kind && *fault_.kind != call) return std::nullopt;
    ++calls_;
    if (fault_.at == 0 || calls_ < fault_.at || (calls_ > fault_.at && !fault_.onwards)) return std::nullopt;
    ++injected_;
    return fault_.error;
  }

  const Fault fault_;
  mutable std::mutex mutex_;
  std::uint64_t calls_ = 0;
  std::uint64_t injected_ = 0;
  std::vector<Call> log_;
};

}  // namespace faulty
