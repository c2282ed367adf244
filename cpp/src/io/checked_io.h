#pragma once

// Helpers for callers of FileOps: complete reads and writes, and errors that say what failed and where.

#include <cerrno>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/file_sink.h"
#include "io/file_ops.h"
#include "weightstore/byte_source.h"
#include "weightstore/error.h"

namespace weightstore::io {

// An Error(kIo) with this message, errno and path.
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

// Writes all of `data`. Throws Error(kIo), also when the system accepts no more bytes.
void write_fully(FileOps& ops, int fd, ConstBytes data, std::uint64_t offset, std::string_view path);

// The same for up to IOV_MAX pieces of memory. The call changes `pieces`.
void write_fully(FileOps& ops, int fd, std::span<struct iovec> pieces, std::uint64_t offset, std::string_view path);

// Opens the same file again with O_DIRECT. Returns -1 where that is not possible. `access` is O_RDONLY or O_WRONLY.
int reopen_direct(FileOps& ops, int fd, int access);

// Closes a descriptor and ignores errors: for files that were only read, or that are removed anyway. Never throws.
void close_quietly(FileOps& ops, int fd) noexcept;

// Whether `path` (not a symlink) still names the open file `fd`.
bool names_open_file(const std::string& path, int fd, FileOps& ops);

// O_DIRECT needs offsets, lengths and addresses that are multiples of this: the largest block size in common use.
inline constexpr std::size_t kDirectAlignment = 4096;

// How many bytes one system call moves: enough that the call itself costs nothing, and few enough to stay in the L3
// cache.
inline constexpr std::size_t kChunkBytes = FileSink::kChunkBytes;

// The kind of a file by its st_mode: "a directory", "a FIFO", ...
std::string_view kind_of_file(mode_t mode);

}  // namespace weightstore::io
