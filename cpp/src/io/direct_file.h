#pragma once

// Reads of a file that go around the page cache.

#include <atomic>
#include <cstdint>
#include <mutex>

#include "io/file_ops.h"

namespace weightstore::io {

// A second descriptor, with O_DIRECT, of a file that is open; opened when first needed. Thread-safe.
class DirectFile {
 public:
  // `fd` stays the caller's, and outlives this.
  DirectFile(FileOps& ops, int fd) : ops_(ops), fd_(fd) {}
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // False once the file system has refused.
  bool usable() const { return !refused_.load(std::memory_order_relaxed); }
  bool is_cold(std::uint64_t offset, std::uint64_t length) const;

  // Fills `buffer` with [begin, begin + needed) of the file, and perhaps some more up to the alignment; `buffer` and
  // `begin` are aligned to kDirectAlignment. False when the bytes could not be had this way.
  bool read(std::uint64_t begin, std::uint64_t needed, std::byte* buffer);

 private:
  FileOps& ops_;
  const int fd_;
  int direct_ = -1;
  std::once_flag opened_;
  std::atomic<bool> refused_{false};
};

}  // namespace weightstore::io
