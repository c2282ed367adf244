#pragma once

// The memory of one tensor that the pager has read.

#include <atomic>
#include <cstdint>
#include <memory>

#include "weightstore/byte_source.h"

namespace weightstore::pager {

class PagerImpl;

// A frame, as buffer managers call it. The pager's table, every handle and every waiting caller have one reference
// each; whoever drops the last reference gives the memory back.
//
// The fields that a hit and a release touch come first, in one cache line: with many tensors that line is not in the
// cache.
struct alignas(64) Frame {
  std::atomic<std::uint32_t> refs{0};
  std::uint32_t tensor = 0;
  std::shared_ptr<PagerImpl> impl;  // gets the memory back, so the frame keeps it alive
  ConstBytes bytes;
  std::uint64_t charge = 0;                // how much live_bytes() counts for this frame
  SharedMutableBytes buffer;               // the memory that `bytes` points into; empty for a view
  std::shared_ptr<const void> view_owner;  // zero copy: keeps the source's memory; otherwise null

  // Takes a reference without having one already. False when another thread is dropping the last reference.
  bool try_reference() {
    std::uint32_t now = refs.load(std::memory_order_relaxed);
    while (now != 0) {
      if (refs.compare_exchange_weak(now, now + 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
    }
    return false;
  }
};

}  // namespace weightstore::pager
