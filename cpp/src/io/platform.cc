#include "io/platform.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#endif

namespace weightstore::io::platform {

namespace {

[[maybe_unused]] int unsupported(int error) {
  errno = error;
  return -1;
}

}  // namespace

std::optional<std::uint64_t> physical_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long bytes = ::sysconf(_SC_PAGESIZE);
  if (pages <= 0 || bytes <= 0) return std::nullopt;
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(bytes);
}

#if defined(__linux__) && !defined(WEIGHTSTORE_PORTABLE)

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

}  // namespace

int advise(void* address, std::size_t length, int advice) { return ::madvise(address, length, advice); }

int pages_in_memory(void* address, std::size_t length, unsigned char* pages) {
  return ::mincore(address, length, pages);
}

int cached_pages(int fd, std::uint64_t offset, std::uint64_t length, std::uint64_t* pages) {
  CachestatRange range{offset, length};
  Cachestat result{};
  if (::syscall(kCachestatNumber, fd, &range, &result, 0u) != 0) return -1;
  *pages = result.cached;
  return 0;
}

int reserve_blocks(int fd, off_t offset, off_t length) { return ::fallocate(fd, 0, offset, length); }

ssize_t copy_between_files(int from, off_t from_offset, int to, off_t to_offset, std::size_t length) {
  return ::copy_file_range(from, &from_offset, to, &to_offset, length, 0);
}

int swap_names(const char* a, const char* b) { return ::renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE); }

ssize_t list_attributes(const char* path, char* out, std::size_t size) { return ::llistxattr(path, out, size); }

ssize_t get_attribute(const char* path, const char* name, void* out, std::size_t size) {
  return ::lgetxattr(path, name, out, size);
}

int set_attribute(int fd, const char* name, const void* value, std::size_t size) {
  return ::fsetxattr(fd, name, value, size, 0);
}

unsigned usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = ::sched_getaffinity(0, sizeof set, &set) == 0;
  return known ? static_cast<unsigned>(CPU_COUNT(&set)) : std::thread::hardware_concurrency();
}

#else

int advise(void* address, std::size_t length, int advice) {
#ifdef MADV_DONTNEED
  if (advice == kDrop) return ::madvise(address, length, MADV_DONTNEED);
#endif
  return unsupported(EINVAL);
}

int pages_in_memory(void* address, std::size_t length, unsigned char* pages) {
#if defined(__APPLE__)
  return ::mincore(static_cast<char*>(address), length, reinterpret_cast<char*>(pages));
#else
  return ::mincore(address, length, pages);
#endif
}

int cached_pages(int /*fd*/, std::uint64_t /*offset*/, std::uint64_t /*length*/, std::uint64_t* /*pages*/) {
  return unsupported(ENOSYS);
}

int reserve_blocks(int /*fd*/, off_t /*offset*/, off_t /*length*/) { return unsupported(EOPNOTSUPP); }

ssize_t copy_between_files(int /*from*/, off_t /*from_offset*/, int /*to*/, off_t /*to_offset*/,
                           std::size_t /*length*/) {
  return unsupported(ENOSYS);
}

int swap_names(const char* a, const char* b) {
#if defined(__APPLE__)
  return ::renamex_np(a, b, RENAME_SWAP);
#else
  const std::string aside = std::string(b) + "." + std::to_string(::getpid()) + ".swap";
  if (::rename(b, aside.c_str()) != 0) return -1;
  if (::rename(a, b) != 0) {
    const int error = errno;
    ::rename(aside.c_str(), b);
    return unsupported(error);
  }
  return ::rename(aside.c_str(), a);
#endif
}

ssize_t list_attributes(const char* /*path*/, char* /*out*/, std::size_t /*size*/) { return unsupported(ENOTSUP); }

ssize_t get_attribute(const char* /*path*/, const char* /*name*/, void* /*out*/, std::size_t /*size*/) {
  return unsupported(ENOTSUP);
}

int set_attribute(int /*fd*/, const char* /*name*/, const void* /*value*/, std::size_t /*size*/) {
  return unsupported(ENOTSUP);
}

unsigned usable_processors() { return std::thread::hardware_concurrency(); }

#endif

int rename_to_new(const char* from, const char* to) {
#if defined(__linux__) && !defined(WEIGHTSTORE_PORTABLE)
  if (::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return -1;
#endif
  // The system or the file system does not have the flag. A hard link never replaces a file either. If the old name
  // cannot be removed then, it is a stale temporary like any other.
  if (::link(from, to) != 0) return -1;
  ::unlink(from);
  return 0;
}

}  // namespace weightstore::io::platform
