#include "io/file_ops.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "io/platform.h"

namespace weightstore::io {
namespace {

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

int FileOps::fallocate(int fd, off_t offset, off_t length) { return platform::reserve_blocks(fd, offset, length); }
int FileOps::ftruncate(int fd, off_t length) { return ::ftruncate(fd, length); }
int FileOps::fchmod(int fd, mode_t mode) { return ::fchmod(fd, mode); }
int FileOps::fchown(int fd, uid_t owner, gid_t group) { return ::fchown(fd, owner, group); }

int FileOps::fsetxattr(int fd, const char* name, const void* value, std::size_t size) {
  return platform::set_attribute(fd, name, value, size);
}

ssize_t FileOps::copy_file_range(int from, off_t from_offset, int to, off_t to_offset, std::size_t length) {
  return platform::copy_between_files(from, from_offset, to, to_offset, length);
}

int FileOps::fsync(int fd) { return ::fsync(fd); }
int FileOps::flock(int fd, int operation) { return ::flock(fd, operation); }

void* FileOps::mmap(std::size_t length, int protection, int flags, int fd, off_t offset) {
  return ::mmap(nullptr, length, protection, flags, fd, offset);
}

int FileOps::munmap(void* address, std::size_t length) { return ::munmap(address, length); }
int FileOps::madvise(void* address, std::size_t length, int advice) {
  return platform::advise(address, length, advice);
}

int FileOps::mincore(void* address, std::size_t length, unsigned char* pages) {
  return platform::pages_in_memory(address, length, pages);
}

int FileOps::cachestat(int fd, std::uint64_t offset, std::uint64_t length, std::uint64_t* cached_pages) {
  return platform::cached_pages(fd, offset, length, cached_pages);
}

int FileOps::stat(const char* path, struct stat* out) { return ::stat(path, out); }
int FileOps::lstat(const char* path, struct stat* out) { return ::lstat(path, out); }
ssize_t FileOps::readlink(const char* path, char* out, std::size_t size) { return ::readlink(path, out, size); }
char* FileOps::realpath(const char* path) { return ::realpath(path, nullptr); }
ssize_t FileOps::llistxattr(const char* path, char* out, std::size_t size) {
  return platform::list_attributes(path, out, size);
}

ssize_t FileOps::lgetxattr(const char* path, const char* name, void* out, std::size_t size) {
  return platform::get_attribute(path, name, out, size);
}

int FileOps::chmod(const char* path, mode_t mode) { return ::chmod(path, mode); }
int FileOps::rename(const char* from, const char* to) { return ::rename(from, to); }

int FileOps::rename_new(const char* from, const char* to) { return platform::rename_to_new(from, to); }
int FileOps::exchange(const char* a, const char* b) { return platform::swap_names(a, b); }
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
