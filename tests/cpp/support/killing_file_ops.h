#pragma once

// A process that dies in the middle of a save.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>

#include "check.h"
#include "io/file_ops.h"

namespace killing {

using namespace weightstore;

// Kills the process before the n-th call.
class KillingFileOps final : public io::FileOps {
 public:
  explicit KillingFileOps(std::uint64_t at) : left_(at) {}

  int open(const char* path, int flags, mode_t mode) override { return count(), FileOps::open(path, flags, mode); }
  int close(int fd) override { return count(), FileOps::close(fd); }
  ssize_t pwrite(int fd, const void* data, std::size_t length, off_t offset) override {
    return count(), FileOps::pwrite(fd, data, length, offset);
  }
  ssize_t copy_file_range(int from, off_t from_offset, int to, off_t to_offset, std::size_t length) override {
    return count(), FileOps::copy_file_range(from, from_offset, to, to_offset, length);
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
inline bool dies_at(std::uint64_t n, const std::function<void(io::FileOps&)>& save) {
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

}  // namespace killing
