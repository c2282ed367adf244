#include "file/boxes/box_file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "io/checked_io.h"
#include "io/parallel.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

constexpr std::size_t kFilesAtOnce = 64;

}  // namespace

BoxFile::BoxFile(const std::filesystem::path& path, bool direct, io::FileOps& ops) : ops_(ops), path_(path.native()) {
  fd_ = io::retry_interrupted([&] { return ops_.open(path_.c_str(), O_WRONLY | O_CLOEXEC, 0); });
  if (fd_ < 0) throw io::io_error(errno, "cannot open the file to write into it", path_);
  if (direct) direct_ = io::reopen_direct(ops_, fd_, O_WRONLY);
}

BoxFile::~BoxFile() {
  io::close_quietly(ops_, direct_);
  io::close_quietly(ops_, fd_);
}

void BoxFile::write(std::uint64_t offset, ConstBytes bytes) { io::write_fully(ops_, fd_, bytes, offset, path_); }

void BoxFile::write_direct(std::uint64_t offset, ConstBytes bytes) {
  const std::size_t head = std::min<std::size_t>(
      (io::kDirectAlignment - offset % io::kDirectAlignment) % io::kDirectAlignment, bytes.size());
  write(offset, bytes.first(head));
  offset += head;
  bytes = bytes.subspan(head);
  while (bytes.size() >= io::kDirectAlignment && is_direct()) {
    const std::size_t whole = bytes.size() / io::kDirectAlignment * io::kDirectAlignment;
    const ssize_t n =
        io::retry_interrupted([&] { return ops_.pwrite(direct_, bytes.data(), whole, static_cast<off_t>(offset)); });
    if (n < 0 && errno != EINVAL) throw io::io_error(errno, "cannot write", path_).at_offset(offset);
    if (n <= 0 || static_cast<std::size_t>(n) % io::kDirectAlignment != 0) refused_.store(true);
    if (n <= 0) break;
    offset += static_cast<std::uint64_t>(n);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  write(offset, bytes);
}

std::shared_ptr<BoxFile> BoxFiles::open(std::size_t number) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<BoxFile>& file = files_[number];
  if (file == nullptr) file = std::make_shared<BoxFile>(paths_[number], direct_, ops_);
  const std::shared_ptr<BoxFile> result = file;
  if (files_.size() > kFilesAtOnce) {
    auto oldest = files_.begin();
    if (oldest->first == number) ++oldest;
    files_.erase(oldest);  // closed when the last thread is done with it
  }
  return result;
}

void sync_files(std::span<const std::filesystem::path> paths, io::FileOps& ops) {
  io::parallel_for(paths.size(), 0, [&](std::size_t i) {
    const std::string& path = paths[i].native();
    const int fd = io::retry_interrupted([&] { return ops.open(path.c_str(), O_RDONLY | O_CLOEXEC, 0); });
    if (fd < 0) throw io::io_error(errno, "cannot open the file to sync it", path);
    // Repeated only after a signal: after an error the kernel may have dropped the data that it could not write.
    const int done = io::retry_interrupted([&] { return ops.fsync(fd); });
    const int cause = errno;
    io::close_quietly(ops, fd);
    if (done != 0) throw io::io_error(cause, "cannot sync the file", path);
  });
}

}  // namespace weightstore
