#pragma once

// Whether a path still leads to the same file.

#include <sys/stat.h>

#include <optional>

namespace weightstore::io {

// Of no file by default. Two files in one place, one after the other, differ at least in the time of change; so does a
// file that another program has written again.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  off_t size = 0;
  time_t seconds = 0;
  long nanoseconds = 0;

  bool operator==(const FileIdentity&) const = default;
};

// `status` is what find_file() or find_name() returned.
inline FileIdentity identity_of(const std::optional<struct stat>& status) {
  if (!status) return {};
  return {status->st_dev, status->st_ino, status->st_size, status->st_mtim.tv_sec, status->st_mtim.tv_nsec};
}

}  // namespace weightstore::io
