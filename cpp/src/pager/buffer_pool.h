#pragma once

// Buffers for tensors, used again and again: the first touch of a new page costs several times as much as reading into
// it.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "pager/frame.h"
#include "weightstore/byte_source.h"

namespace weightstore::pager {

// The free buffers, by capacity. The caller holds the pager's mutex, except for the static functions.
class BufferPool {
 public:
  // The pool keeps no buffers smaller than this, and they have no slack.
  static constexpr std::uint64_t kPooled = 64 << 10;

  // The capacity of a buffer for `size` bytes. Capacities are whole pages, and at most 256 lie between two powers of
  // two, so that tensors of the same shape share buffers wherever they begin inside a page of the file. The slack of a
  // buffer is at most a 256th of it, or less than a page.
  static std::uint64_t capacity_for(std::uint64_t size);
  // New memory. It is aligned to 64 bytes; from kPooled on to a page; from 2 MiB on to 2 MiB. Throws Error(kMemory) or
  // std::bad_alloc.
  static SharedMutableBytes allocate(std::uint64_t capacity);

  // A free buffer of exactly this capacity, if there is one.
  std::optional<SharedMutableBytes> take(std::uint64_t capacity);
  void put(SharedMutableBytes buffer);
  // Retires the largest buffer. Returns its capacity, or 0 when the pool is empty.
  std::uint64_t drop_one(Retired& retired);
  std::uint64_t free_bytes() const { return free_bytes_; }

 private:
  std::map<std::uint64_t, std::vector<SharedMutableBytes>> free_;
  std::uint64_t free_bytes_ = 0;
};

}  // namespace weightstore::pager
