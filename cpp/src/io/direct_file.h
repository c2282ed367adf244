#pragma once

// Reads that bypass the page cache.

#include <atomic>
#include <cstdint>
#include <mutex>

#include "io/file_ops.h"

namespace weightstore::io {

// A second descriptor of an open file, with O_DIRECT. It is opened when it is first needed. Thread-safe.
class DirectFile {
 public:
  // The caller owns `fd`, which outlives this object.
  DirectFile(FileOps& ops, int fd) : ops_(ops), fd_(fd) {}
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // False once the file system has refused direct reads.
  bool usable() const { return !refused_.load(std::memory_order_relaxed); }
  // Whether most of this range is not in the page cache, so that a direct read is the faster one.
  bool is_cold(std::uint64_t offset, std::uint64_t length) const;

  // Reads [begin, begin + needed) of the file into `buffer`, and perhaps more up to the next multiple of
  // kDirectAlignment. `buffer` and `begin` are aligned to kDirectAlignment. False when a direct read is not possible:
  // read the bytes in another way then.
  bool read(std::uint64_t begin, std::uint64_t needed, std::byte* buffer);

 private:
  FileOps& ops_;
  const int fd_;
  int direct_ = -1;
  std::once_flag opened_;
  std::atomic<bool> refused_{false};
};

}  // namespace weightstore::io
