#include "io/file_ops.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <thread>

namespace weightstore::io {

int FileOps::open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }
int FileOps::close(int fd) { return ::close(fd); }
int FileOps::fstat(int fd, struct stat* out) { return ::fstat(fd, out); }

ssize_t FileOps::pread(int fd, void* out, std::size_t length, off_t offset) { return ::pread(fd, out, length, offset); }

ssize_t FileOps::pwrite(int fd, const void* data, std::size_t length, off_t offset) {
  return ::pwrite(fd, data, length, offset);
}

ssize_t FileOps::pwritev(int fd, const struct iovec* pieces, int count, off_t offset) {
  return ::pwritev(fd, pieces, count, offset);
}

int FileOps::fallocate(int fd, off_t offset, off_t length) { return ::fallocate(fd, 0, offset, length); }
int FileOps::ftruncate(int fd, off_t length) { return ::ftruncate(fd, length); }
int FileOps::fchmod(int fd, mode_t mode) { return ::fchmod(fd, mode); }
int FileOps::fchown(int fd, uid_t owner, gid_t group) { return ::fchown(fd, owner, group); }
int FileOps::fsync(int fd) { return ::fsync(fd); }
int FileOps::flock(int fd, int operation) { return ::flock(fd, operation); }
int FileOps::rename(const char* from, const char* to) { return ::rename(from, to); }

int FileOps::rename_new(const char* from, const char* to) {
  if (::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -1;
  // A file system without the flag. A hard link never replaces either; should the old name then not go away, it is a
  // stale temporary like any other.
  if (::link(from, to) != 0) return -1;
  ::unlink(from);
  return 0;
}

int FileOps::unlink(const char* path) { return ::unlink(path); }

int FileOps::mkdir(const char* path, mode_t mode) { return ::mkdir(path, mode); }
int FileOps::rmdir(const char* path) { return ::rmdir(path); }

int FileOps::exchange(const char* a, const char* b) { return ::renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE); }

void FileOps::reached(const char* /*step*/) {}

std::chrono::steady_clock::time_point FileOps::now() { return std::chrono::steady_clock::now(); }

void FileOps::pause(std::chrono::milliseconds duration) { std::this_thread::sleep_for(duration); }

FileOps& system_file_ops() {
  static FileOps& ops = *new FileOps;  // never destroyed: a source in static storage may close its file after main()
  return ops;
}

}  // namespace weightstore::io
