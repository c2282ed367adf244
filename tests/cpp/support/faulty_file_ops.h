#pragma once

// A file system that fails when told to.

#include <sys/mman.h>

#include <atomic>
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
  kDup,
  kFstat,
  kFstatvfs,
  kPread,
  kPwrite,
  kCopy,  // copy_file_range()
  kFallocate,
  kFtruncate,
  kFchmod,
  kFchown,
  kFsync,
  kFlock,
  kAttributes,  // extended attributes, read or set
  kMmap,
  kMunmap,
  kMadvise,
  kPageCache,  // cachestat() or mincore()
  kStat,       // stat() or lstat()
  kReadlink,
  kRealpath,
  kChmod,
  kRename,  // rename(), rename_new() or exchange()
  kUnlink,
  kMkdir,
  kRmdir,
  kOpendir,
  kReaddir,
  kClosedir,
};

// What happens at the chosen call. A failing call does nothing; but close(), closedir() and munmap() do their work
// before they fail, as Linux does. A short call moves about half of what was asked for.
struct Fault {
  std::uint64_t at = 0;      // the at-th call, counted from 1; 0: none
  std::optional<Call> kind;  // counts calls of this kind only
  int error = EIO;           // 0: a short count from pread(), pwrite() or copy_file_range(); other calls pass
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
  int mappings() const { return mappings_; }  // that are there now
  // Every call so far, in order.
  std::vector<Call> log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  int open(const char* path, int flags, mode_t mode) override {
    return fails(Call::kOpen) ? -1 : FileOps::open(path, flags, mode);
  }
  int close(int fd) override {
    return failing_after(Call::kClose, [&] { return FileOps::close(fd); });
  }
  int dup(int fd) override { return fails(Call::kDup) ? -1 : FileOps::dup(fd); }
  int fstat(int fd, struct stat* out) override { return fails(Call::kFstat) ? -1 : FileOps::fstat(fd, out); }
  int fstatvfs(int fd, struct statvfs* out) override {
    return fails(Call::kFstatvfs) ? -1 : FileOps::fstatvfs(fd, out);
  }
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
  ssize_t copy_file_range(int from, off_t from_offset, int to, off_t to_offset, std::size_t length) override {
    if (const auto now = choose(Call::kCopy)) {
      if (*now != 0) return fail(*now);
      length = (length + 1) / 2;
    }
    return FileOps::copy_file_range(from, from_offset, to, to_offset, length);
  }
  int fallocate(int fd, off_t offset, off_t length) override {
    return fails(Call::kFallocate) ? -1 : FileOps::fallocate(fd, offset, length);
  }
  int ftruncate(int fd, off_t length) override { return fails(Call::kFtruncate) ? -1 : FileOps::ftruncate(fd, length); }
  int fchmod(int fd, mode_t mode) override { return fails(Call::kFchmod) ? -1 : FileOps::fchmod(fd, mode); }
  int fchown(int fd, uid_t owner, gid_t group) override {
    return fails(Call::kFchown) ? -1 : FileOps::fchown(fd, owner, group);
  }
  int fsetxattr(int fd, const char* name, const void* value, std::size_t size) override {
    return fails(Call::kAttributes) ? -1 : FileOps::fsetxattr(fd, name, value, size);
  }
  int fsync(int fd) override { return fails(Call::kFsync) ? -1 : FileOps::fsync(fd); }
  int flock(int fd, int operation) override { return fails(Call::kFlock) ? -1 : FileOps::flock(fd, operation); }

  void* mmap(std::size_t length, int protection, int flags, int fd, off_t offset) override {
    if (fails(Call::kMmap)) return MAP_FAILED;
    void* address = FileOps::mmap(length, protection, flags, fd, offset);
    if (address != MAP_FAILED) ++mappings_;
    return address;
  }
  int munmap(void* address, std::size_t length) override {
    --mappings_;
    return failing_after(Call::kMunmap, [&] { return FileOps::munmap(address, length); });
  }
  int madvise(void* address, std::size_t length, int advice) override {
    return fails(Call::kMadvise) ? -1 : FileOps::madvise(address, length, advice);
  }
  int mincore(void* address, std::size_t length, unsigned char* pages) override {
    return fails(Call::kPageCache) ? -1 : FileOps::mincore(address, length, pages);
  }
  int cachestat(int fd, std::uint64_t offset, std::uint64_t length, std::uint64_t* cached_pages) override {
    return fails(Call::kPageCache) ? -1 : FileOps::cachestat(fd, offset, length, cached_pages);
  }

  int stat(const char* path, struct stat* out) override { return fails(Call::kStat) ? -1 : FileOps::stat(path, out); }
  int lstat(const char* path, struct stat* out) override { return fails(Call::kStat) ? -1 : FileOps::lstat(path, out); }
  ssize_t readlink(const char* path, char* out, std::size_t size) override {
    return fails(Call::kReadlink) ? -1 : FileOps::readlink(path, out, size);
  }
  char* realpath(const char* path) override { return fails(Call::kRealpath) ? nullptr : FileOps::realpath(path); }
  ssize_t llistxattr(const char* path, char* out, std::size_t size) override {
    return fails(Call::kAttributes) ? -1 : FileOps::llistxattr(path, out, size);
  }
  ssize_t lgetxattr(const char* path, const char* name, void* out, std::size_t size) override {
    return fails(Call::kAttributes) ? -1 : FileOps::lgetxattr(path, name, out, size);
  }
  int chmod(const char* path, mode_t mode) override { return fails(Call::kChmod) ? -1 : FileOps::chmod(path, mode); }
  int rename(const char* from, const char* to) override {
    return fails(Call::kRename) ? -1 : FileOps::rename(from, to);
  }
  int rename_new(const char* from, const char* to) override {
    return fails(Call::kRename) ? -1 : FileOps::rename_new(from, to);
  }
  int exchange(const char* a, const char* b) override { return fails(Call::kRename) ? -1 : FileOps::exchange(a, b); }
  int unlink(const char* path) override { return fails(Call::kUnlink) ? -1 : FileOps::unlink(path); }

  int mkdir(const char* path, mode_t mode) override { return fails(Call::kMkdir) ? -1 : FileOps::mkdir(path, mode); }
  int rmdir(const char* path) override { return fails(Call::kRmdir) ? -1 : FileOps::rmdir(path); }
  DIR* opendir(const char* path) override { return fails(Call::kOpendir) ? nullptr : FileOps::opendir(path); }
  struct dirent* readdir(DIR* directory) override {
    return fails(Call::kReaddir) ? nullptr : FileOps::readdir(directory);
  }
  int closedir(DIR* directory) override {
    return failing_after(Call::kClosedir, [&] { return FileOps::closedir(directory); });
  }

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

  template <class Do>
  int failing_after(Call call, Do work) {
    const auto error = choose(call);
    const int result = work();
    return error && *error != 0 ? fail(*error) : result;
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
  std::atomic<int> mappings_{0};
};

}  // namespace faulty
