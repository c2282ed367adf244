#pragma once

// The page cache, as tests need it.

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

namespace cache_control {

// Drops a file's pages from memory. File systems that live in memory keep them.
inline void evict(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

// Whether files in `directory` can be opened with O_DIRECT.
inline bool has_direct_io(const std::filesystem::path& directory) {
  const auto path = directory / "direct-io-probe";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
  if (fd >= 0) ::close(fd);
  ::unlink(path.c_str());
  return fd >= 0;
}

}  // namespace cache_control
