#pragma once

// Memory for tensors that come and go. Touching fresh pages costs several times what reading into them does, so buffers
// are kept and used again.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "weightstore/byte_source.h"

namespace weightstore::pager {

// What was let go under the pager's mutex and is to be freed after it.
using Garbage = std::vector<std::shared_ptr<const void>>;

// Free buffers by capacity. Thread-compatible: the pager's mutex guards it.
class BufferPool {
 public:
  // Smaller buffers are not kept, and have no slack.
  static constexpr std::uint64_t kPooled = 64 << 10;

  // The capacity of a buffer for `size` bytes: the next of eight steps to each power of two, so that tensors of about
  // the same size share buffers; at most an eighth is slack.
  static std::uint64_t capacity_for(std::uint64_t size);
  // New memory, aligned to 64 bytes, from kPooled to a page, from 2 MiB to that. Throws Error(kMemory) or
  // std::bad_alloc.
  static SharedMutableBytes allocate(std::uint64_t capacity);

  std::optional<SharedMutableBytes> take(std::uint64_t capacity);
  void put(SharedMutableBytes buffer);
  // Lets the largest buffer go; returns its capacity, 0 when there is none.
  std::uint64_t drop_one(Garbage& garbage);
  std::uint64_t free_bytes() const { return free_bytes_; }

 private:
  std::map<std::uint64_t, std::vector<SharedMutableBytes>> free_;
  std::uint64_t free_bytes_ = 0;
};

}  // namespace weightstore::pager
