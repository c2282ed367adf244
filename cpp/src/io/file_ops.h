#pragma once

// The seam between this library and the file system. Everything that looks at, lists, opens, reads, maps, writes,
// syncs, renames or removes a file or a directory goes through FileOps, so that a test can make any of these calls
// fail, or record them. tests/cpp/layers_test.py asserts that no other source calls the operating system's file
// functions.
//
// Two kinds of files are outside of the seam, because they describe the system and hold no data of the caller: the
// files of /proc and of control groups that io/available_memory.cc and io/locks/liveness.cc read.

#include <dirent.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <chrono>
#include <cstdint>

namespace weightstore::io {

// One virtual function for each system call, with the arguments, the result and the errno of that call. FileOps neither
// retries nor checks: callers do that (io/checked_io.h, io/paths.h). Thread-safe.
class FileOps {
 public:
  virtual ~FileOps() = default;

  // Open files.
  virtual int open(const char* path, int flags, mode_t mode);
  virtual int close(int fd);
  virtual int dup(int fd);  // the copy is closed on exec
  virtual int fstat(int fd, struct stat* out);
  virtual int fstatvfs(int fd, struct statvfs* out);
  virtual ssize_t pread(int fd, void* out, std::size_t length, off_t offset);
  virtual ssize_t pwrite(int fd, const void* data, std::size_t length, off_t offset);
  virtual ssize_t pwritev(int fd, const struct iovec* pieces, int count, off_t offset);
  // Lets the system copy from one file to another, which may only share the blocks.
  virtual ssize_t copy_file_range(int from, off_t from_offset, int to, off_t to_offset, std::size_t length);
  virtual int fallocate(int fd, off_t offset, off_t length);
  virtual int ftruncate(int fd, off_t length);
  virtual int fchmod(int fd, mode_t mode);
  virtual int fchown(int fd, uid_t owner, gid_t group);
  virtual int fsetxattr(int fd, const char* name, const void* value, std::size_t size);
  virtual int fsync(int fd);
  virtual int flock(int fd, int operation);

  // Mappings of files, and what the page cache holds of files.
  virtual void* mmap(std::size_t length, int protection, int flags, int fd, off_t offset);
  virtual int munmap(void* address, std::size_t length);
  virtual int madvise(void* address, std::size_t length, int advice);
  virtual int mincore(void* address, std::size_t length, unsigned char* pages);
  virtual int cachestat(int fd, std::uint64_t offset, std::uint64_t length, std::uint64_t* cached_pages);

  // Names.
  virtual int stat(const char* path, struct stat* out);
  virtual int lstat(const char* path, struct stat* out);
  virtual ssize_t readlink(const char* path, char* out, std::size_t size);
  virtual char* realpath(const char* path);  // the caller frees the result
  virtual ssize_t llistxattr(const char* path, char* out, std::size_t size);
  virtual ssize_t lgetxattr(const char* path, const char* name, void* out, std::size_t size);
  virtual int chmod(const char* path, mode_t mode);
  virtual int rename(const char* from, const char* to);
  virtual int rename_new(const char* from, const char* to);  // fails with EEXIST when `to` exists
  virtual int exchange(const char* a, const char* b);        // swaps what the two names lead to, atomically
  virtual int unlink(const char* path);

  // Directories.
  virtual int mkdir(const char* path, mode_t mode);
  virtual int rmdir(const char* path);
  virtual DIR* opendir(const char* path);
  virtual struct dirent* readdir(DIR* directory);
  virtual int closedir(DIR* directory);

  // Protocols of several steps call this after each step, with the name of the step, so that a test can stop there.
  virtual void reached(const char* step);

  // The clock for deadlines and for measuring how fast the other calls are.
  virtual std::chrono::steady_clock::time_point now();

  // Sleeps. Callers that poll call this between two looks.
  virtual void pause(std::chrono::milliseconds duration);
};

// The operating system itself. Has no state, and is never destroyed.
FileOps& system_file_ops();

// The file system of the calling thread: the operating system, unless a test has opened a FileOpsScope on this thread.
// Only the functions behind the public headers ask for it, once and on the thread of their caller. They pass the
// reference on to everything below them and to the threads that they start; objects that stay open keep the reference.
FileOps& current_file_ops();

// For tests: while the scope is open, current_file_ops() is `ops` on this thread. Scopes may be nested. `ops` must live
// as long as everything that was opened in the scope.
class FileOpsScope {
 public:
  explicit FileOpsScope(FileOps& ops);
  ~FileOpsScope();
  FileOpsScope(const FileOpsScope&) = delete;
  FileOpsScope& operator=(const FileOpsScope&) = delete;

 private:
  FileOps* const before_;
};

}  // namespace weightstore::io
