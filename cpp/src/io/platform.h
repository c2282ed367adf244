#pragma once

// What only Linux has, and what stands in for it elsewhere. Nothing else in the library names a call or a constant that
// other systems lack. WEIGHTSTORE_PORTABLE forces the stand-ins on Linux, too, so that the tests run with them.
//
// Functions have the result and the errno of a system call. A stand-in that cannot do what was asked fails with ENOSYS
// or ENOTSUP, as an old kernel or a file system does; callers know that. flock(2) is on every system that is meant
// here, and the files of /proc are read where they are there (io/available_memory.cc, io/locks/liveness.cc).

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>

namespace weightstore::io::platform {

#if defined(__linux__) && !defined(WEIGHTSTORE_PORTABLE)
inline constexpr bool kIsLinux = true;
inline constexpr int kOpenDirect = O_DIRECT;
inline constexpr int kOpenPathOnly = O_PATH;
#else
inline constexpr bool kIsLinux = false;
// Files are read and written through the page cache only.
inline constexpr int kOpenDirect = 0;
// Needs the right to read, and must not wait for the other end of a pipe.
inline constexpr int kOpenPathOnly = O_RDONLY | O_NONBLOCK;
#endif

// Numbers of madvise(2), some of which are newer than the headers of many C libraries.
enum Advice : int {
  kDrop = 4,           // forget the pages; stand-in: the same, or nothing
  kHugePages = 14,     // stand-in: none
  kSmallPages = 15,    // stand-in: none
  kPopulateRead = 22,  // stand-in: none; pages come one by one when they are touched
  kPopulateWrite = 23,
};
int advise(void* address, std::size_t length, int advice);

// Which pages of a mapping are in memory: bit 0 of each byte.
int pages_in_memory(void* address, std::size_t length, unsigned char* pages);
// The same as a number, of an open file, without a mapping. Stand-in: none.
int cached_pages(int fd, std::uint64_t offset, std::uint64_t length, std::uint64_t* pages);

// Stand-in: none; blocks are allocated as they are written.
int reserve_blocks(int fd, off_t offset, off_t length);
// Stand-in: none; callers read and write.
ssize_t copy_between_files(int from, off_t from_offset, int to, off_t to_offset, std::size_t length);

// Renames, unless the new name is taken (EEXIST). Stand-in: a hard link.
int rename_to_new(const char* from, const char* to);
// Swaps what two names lead to. Stand-in: three renames, between which one of the names is missing for a moment.
int swap_names(const char* a, const char* b);

// Extended attributes, which hold ACLs on Linux. Stand-in: none, files have no such attributes.
ssize_t list_attributes(const char* path, char* out, std::size_t size);
ssize_t get_attribute(const char* path, const char* name, void* out, std::size_t size);
int set_attribute(int fd, const char* name, const void* value, std::size_t size);

// How many processors this process may use. Stand-in: how many there are.
unsigned usable_processors();

// Bytes of memory of the machine; nullopt if the system does not say. For systems without /proc.
std::optional<std::uint64_t> physical_memory();

// When the file was last written.
inline struct timespec modification_time(const struct stat& status) {
#if defined(__APPLE__)
  return status.st_mtimespec;
#else
  return status.st_mtim;
#endif
}

}  // namespace weightstore::io::platform
