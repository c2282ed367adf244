#pragma once

// The seam between this library and the operating system. Everything that opens, reads, writes, syncs or renames a file
// goes through here, so that a test can put a faulty or a recording file system in its place.

#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace weightstore::io {

// One virtual a system call: same arguments, same result, same errno. No retries, no checks: those are the callers'.
// Thread-safe.
class FileOps {
 public:
  virtual ~FileOps() = default;

  virtual int open(const char* path, int flags, mode_t mode);
  virtual int close(int fd);
  virtual int fstat(int fd, struct stat* out);
  virtual ssize_t pread(int fd, void* out, std::size_t length, off_t offset);
  virtual ssize_t pwrite(int fd, const void* data, std::size_t length, off_t offset);
  virtual ssize_t pwritev(int fd, const struct iovec* pieces, int count, off_t offset);
  virtual int fallocate(int fd, off_t offset, off_t length);
  virtual int ftruncate(int fd, off_t length);
  virtual int fchmod(int fd, mode_t mode);
  virtual int fchown(int fd, uid_t owner, gid_t group);
  virtual int fsync(int fd);
  virtual int flock(int fd, int operation);
  virtual int rename(const char* from, const char* to);
  virtual int rename_new(const char* from, const char* to);  // fails with EEXIST when `to` exists
  virtual int unlink(const char* path);
  virtual int mkdir(const char* path, mode_t mode);
  virtual int rmdir(const char* path);
  virtual int exchange(const char* a, const char* b);  // each name then has what the other had, at one instant

  // Called by protocols of several steps when one is done, under a name of its own, so that a test can end there.
  virtual void reached(const char* step);

  // The clock of those who measure how fast the others are.
  virtual std::chrono::steady_clock::time_point now();

  // Sleeps, between two looks of a caller that polls.
  virtual void pause(std::chrono::milliseconds duration);
};

// The operating system itself. Has no state.
FileOps& system_file_ops();

}  // namespace weightstore::io
