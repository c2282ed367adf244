#include "io/new_file.h"

#include <fcntl.h>

#include <utility>

#include "io/checked_io.h"
#include "io/file_attributes.h"

namespace weightstore::io {

NewFile::NewFile(std::string path, const std::optional<FilePattern>& like, FileOps& ops) : ops_(ops) {
  target_ = std::move(path);
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  fd_ = retry_interrupted([&] { return ops_.open(target_.c_str(), kFlags, like ? 0600 : 0666); });
  if (fd_ < 0) throw io_error(errno, "cannot create the file", target_);
  if (!like) return;
  try {
    take_attributes(fd_, like->path, like->status, target_, ops_);
  } catch (...) {
    abandon();
    throw;
  }
}

NewFile::~NewFile() { abandon(); }

void NewFile::finish(bool durable) {
  // Again after a signal only: an interrupted fsync has not dropped anything.
  if (durable && retry_interrupted([&] { return ops_.fsync(fd_); }) != 0) {
    const int error = errno;
    abandon();
    throw io_error(error, "cannot sync the new file; what was there before is unchanged", target_);
  }
  // An interrupted close(2) has closed on Linux; a second one could hit somebody else's file.
  if (ops_.close(std::exchange(fd_, -1)) != 0 && errno != EINTR) {
    const int error = errno;
    ops_.unlink(target_.c_str());
    throw io_error(error, "cannot close the new file; what was there before is unchanged", target_);
  }
}

void NewFile::abandon() noexcept {
  if (fd_ < 0) return;
  if (!is_parents()) ops_.unlink(target_.c_str());
  close_quietly(ops_, std::exchange(fd_, -1));
}

}  // namespace weightstore::io
