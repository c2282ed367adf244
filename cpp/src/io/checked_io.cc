#include "io/checked_io.h"

#include <fcntl.h>

namespace weightstore::io {

Error io_error(int os_errno, std::string_view what, std::string_view path) {
  Error error(ErrorCode::kIo, std::string(what));
  // Network file systems report ETIMEDOUT. The system's text for it is about connections.
  if (os_errno == ETIMEDOUT) {
    error = Error(ErrorCode::kIo, std::string(what) + ": the file system timed out");
    error.equivalent_errno(os_errno);
  }
  error.in_file(path).with_errno(os_errno);
  return error;
}

std::size_t read_up_to(FileOps& ops, int fd, MutableBytes out, std::uint64_t offset, std::string_view path) {
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = retry_interrupted(
        [&] { return ops.pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done)); });
    if (n < 0) throw io_error(errno, "cannot read", path).at_offset(offset + done);
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

void write_fully(FileOps& ops, int fd, ConstBytes data, std::uint64_t offset, std::string_view path) {
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t n = retry_interrupted(
        [&] { return ops.pwrite(fd, data.data() + done, data.size() - done, static_cast<off_t>(offset + done)); });
    // A regular file that takes nothing is full; looping on it would never end.
    if (n <= 0) throw io_error(n < 0 ? errno : ENOSPC, "cannot write", path).at_offset(offset + done);
    done += static_cast<std::size_t>(n);
  }
}

void write_fully(FileOps& ops, int fd, std::span<struct iovec> pieces, std::uint64_t offset, std::string_view path) {
  while (!pieces.empty()) {
    const ssize_t n = retry_interrupted(
        [&] { return ops.pwritev(fd, pieces.data(), static_cast<int>(pieces.size()), static_cast<off_t>(offset)); });
    if (n <= 0) throw io_error(n < 0 ? errno : ENOSPC, "cannot write", path).at_offset(offset);
    offset += static_cast<std::uint64_t>(n);
    auto left = static_cast<std::size_t>(n);
    while (!pieces.empty() && left >= pieces.front().iov_len) {
      left -= pieces.front().iov_len;
      pieces = pieces.subspan(1);
    }
    if (left > 0) {
      pieces.front().iov_base = static_cast<std::byte*>(pieces.front().iov_base) + left;
      pieces.front().iov_len -= left;
    }
  }
}

int reopen_direct(FileOps& ops, int fd, int access) {
  // By descriptor, not by path: the path may name another file by now.
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  return retry_interrupted([&] { return ops.open(self.c_str(), access | O_DIRECT | O_CLOEXEC, 0); });
}

void close_quietly(FileOps& ops, int fd) noexcept {
  if (fd < 0) return;
  const int saved = errno;
  ops.close(fd);
  errno = saved;
}

bool names_open_file(const std::string& path, int fd, FileOps& ops) {
  struct stat opened;
  struct stat named;
  return retry_interrupted([&] { return ops.fstat(fd, &opened); }) == 0 &&
         retry_interrupted([&] { return ops.lstat(path.c_str(), &named); }) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

std::string_view kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode)) return "a character device";
  if (S_ISBLK(mode)) return "a block device";
  if (S_ISREG(mode)) return "a regular file";
  return "not a regular file";
}

}  // namespace weightstore::io
