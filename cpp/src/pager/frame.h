#pragma once

// The memory of one tensor that the pager has read.

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "weightstore/byte_source.h"

namespace weightstore::pager {

class PagerImpl;

// A frame, as buffer managers call it. A tensor has at most one: it lives while the tensor is resident or callers have
// references to it (references.h).
struct Frame {
  PagerImpl* impl = nullptr;  // gets the memory back; lives as long as it has frames
  ConstBytes bytes;
  std::uint64_t charge = 0;                // how much live_bytes() counts for this frame
  SharedMutableBytes buffer;               // the memory that `bytes` points into; empty for a view
  std::shared_ptr<const void> view_owner;  // zero copy: keeps the source's memory; otherwise null
};

// Memory that code retires while it holds the pager's mutex. The destructor frees it, so it is declared before the
// lock: the memory is then freed after the mutex is unlocked.
class Retired {
 public:
  void add_frame(std::unique_ptr<const Frame> frame) {
    if (first_ == nullptr) {
      first_ = std::move(frame);
    } else {
      more_.push_back(std::move(frame));
    }
  }
  void add(std::shared_ptr<const void> memory) { memory_.push_back(std::move(memory)); }
  bool empty() const { return first_ == nullptr && memory_.empty(); }
  void clear() {
    first_.reset();
    more_.clear();
    memory_.clear();
  }

 private:
  std::unique_ptr<const Frame> first_;  // most often there is one frame, and nothing else
  std::vector<std::unique_ptr<const Frame>> more_;
  std::vector<std::shared_ptr<const void>> memory_;
};

}  // namespace weightstore::pager
