#include "io/file_ops.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace weightstore::io {
namespace {

// cachestat(2) is newer than the headers of many C libraries; its number is the same on every architecture.
constexpr long kCachestatNumber = 451;
struct CachestatRange {
  std::uint64_t offset;
  std::uint64_t length;
};
struct Cachestat {
  std::uint64_t cached;
  std::uint64_t dirty;
  std::uint64_t writeback;
  std::uint64_t evicted;
  std::uint64_t recently_evicted;
};

thread_local FileOps* scoped = nullptr;

}  // namespace

int FileOps::open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }
int FileOps::close(int fd) { return ::close(fd); }
int FileOps::dup(int fd) { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); }
int FileOps::fstat(int fd, struct stat* out) { return ::fstat(fd, out); }
int FileOps::fstatvfs(int fd, struct statvfs* out) { return ::fstatvfs(fd, out); }

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

int FileOps::fsetxattr(int fd, const char* name, const void* value, std::size_t size) {
  return ::fsetxattr(fd, name, value, size, 0);
}

ssize_t FileOps::copy_file_range(int from, off_t from_offset, int to, off_t to_offset, std::size_t length) {
  return ::copy_file_range(from, &from_offset, to, &to_offset, length, 0);
}

int FileOps::fsync(int fd) { return ::fsync(fd); }
int FileOps::flock(int fd, int operation) { return ::flock(fd, operation); }

void* FileOps::mmap(std::size_t length, int protection, int flags, int fd, off_t offset) {
  return ::mmap(nullptr, length, protection, flags, fd, offset);
}

int FileOps::munmap(void* address, std::size_t length) { return ::munmap(address, length); }
int FileOps::madvise(void* address, std::size_t length, int advice) { return ::madvise(address, length, advice); }

int FileOps::mincore(void* address, std::size_t length, unsigned char* pages) {
  return ::mincore(address, length, pages);
}

int FileOps::cachestat(int fd, std::uint64_t offset, std::uint64_t length, std::uint64_t* cached_pages) {
  CachestatRange range{offset, length};
  Cachestat result{};
  if (::syscall(kCachestatNumber, fd, &range, &result, 0u) != 0) return -1;
  *cached_pages = result.cached;
  return 0;
}

int FileOps::stat(const char* path, struct stat* out) { return ::stat(path, out); }
int FileOps::lstat(const char* path, struct stat* out) { return ::lstat(path, out); }
ssize_t FileOps::readlink(const char* path, char* out, std::size_t size) { return ::readlink(path, out, size); }
char* FileOps::realpath(const char* path) { return ::realpath(path, nullptr); }
ssize_t FileOps::llistxattr(const char* path, char* out, std::size_t size) { return ::llistxattr(path, out, size); }

ssize_t FileOps::lgetxattr(const char* path, const char* name, void* out, std::size_t size) {
  return ::lgetxattr(path, name, out, size);
}

int FileOps::chmod(const char* path, mode_t mode) { return ::chmod(path, mode); }
int FileOps::rename(const char* from, const char* to) { return ::rename(from, to); }

int FileOps::rename_new(const char* from, const char* to) {
  if (::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -1;
  // The file system does not have the flag. A hard link never replaces a file either. If the old name cannot be removed
  // then, it is a stale temporary like any other.
  if (::link(from, to) != 0) return -1;
  ::unlink(from);
  return 0;
}

int FileOps::exchange(const char* a, const char* b) { return ::renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE); }
int FileOps::unlink(const char* path) { return ::unlink(path); }
int FileOps::mkdir(const char* path, mode_t mode) { return ::mkdir(path, mode); }
int FileOps::rmdir(const char* path) { return ::rmdir(path); }
DIR* FileOps::opendir(const char* path) { return ::opendir(path); }
struct dirent* FileOps::readdir(DIR* directory) { return ::readdir(directory); }
int FileOps::closedir(DIR* directory) { return ::closedir(directory); }

void FileOps::reached(const char* /*step*/) {}

std::chrono::steady_clock::time_point FileOps::now() { return std::chrono::steady_clock::now(); }

void FileOps::pause(std::chrono::milliseconds duration) { std::this_thread::sleep_for(duration); }

FileOps& system_file_ops() {
  static FileOps& ops = *new FileOps;  // never destroyed: a source in static storage may close its file after main()
  return ops;
}

FileOps& current_file_ops() { return scoped != nullptr ? *scoped : system_file_ops(); }

FileOpsScope::FileOpsScope(FileOps& ops) : before_(scoped) { scoped = &ops; }
FileOpsScope::~FileOpsScope() { scoped = before_; }

}  // namespace weightstore::io
