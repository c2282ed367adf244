#pragma once

// What every caller of FileOps needs: whole reads and writes, and errors that say what failed where.

#include <cerrno>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/file_ops.h"
#include "weightstore/byte_source.h"
#include "weightstore/error.h"

namespace weightstore::io {

// An Error(kIo) that says what failed, with errno and path.
Error io_error(int os_errno, std::string_view what, std::string_view path);

// Repeats a system call while a signal interrupts it.
template <class Call>
auto retry_interrupted(Call&& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// Reads until `out` is full or the file ends; returns the bytes read. Throws Error(kIo).
std::size_t read_up_to(FileOps& ops, int fd, MutableBytes out, std::uint64_t offset, std::string_view path);

// Writes all of `data`. Throws Error(kIo), also when the system accepts nothing more.
void write_fully(FileOps& ops, int fd, ConstBytes data, std::uint64_t offset, std::string_view path);

// The same for bytes in several places, at most IOV_MAX of them; `pieces` is used up.
void write_fully(FileOps& ops, int fd, std::span<struct iovec> pieces, std::uint64_t offset, std::string_view path);

// The same file opened once more with O_DIRECT, or -1 where that cannot be. `access` is O_RDONLY or O_WRONLY.
int reopen_direct(FileOps& ops, int fd, int access);

// Closes a descriptor whose data does not depend on it. Never throws.
void close_quietly(FileOps& ops, int fd) noexcept;

// Whether `path` (not a symlink) still names the open file `fd`.
bool names_open_file(const std::string& path, int fd, FileOps& ops);

// What O_DIRECT wants offsets, lengths and addresses to be a multiple of: the largest block size in common use.
inline constexpr std::size_t kDirectAlignment = 4096;

// How much one system call moves: large enough to cost nothing, small enough to stay in the outer cache.
inline constexpr std::size_t kBlockBytes = std::size_t{4} << 20;

// "a directory", "a FIFO", ... for st_mode.
std::string_view kind_of_file(mode_t mode);

}  // namespace weightstore::io
