#pragma once

// The pager's counters.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <unordered_map>

#include "weightstore/pager.h"

namespace weightstore::pager {

// Counts for the whole pager and for each tensor. The caller holds the pager's mutex.
//
// A hit must be cheap: the hits of a tensor are in its TensorState, which a hit touches anyway, and not here. There are
// counters here only for tensors that were loaded or prefetched at least once.
class Statistics {
 public:
  // Calls `change` with the counters of the pager, and with those of the tensor.
  template <class Change>
  void count(std::size_t tensor, Change change) {
    change(totals_);
    change(by_tensor_[tensor]);
  }

  // A pass begins whenever a caller acquires the tensor that was acquired first.
  void count_passes(std::size_t tensor) {
    if (tensor == first_tensor_) {
      ++totals_.pass_count;
    } else if (first_tensor_ == kNone) {
      first_tensor_ = tensor;
    }
  }
  // Counters that only the whole pager has, not each tensor.
  void count_hit() { ++totals_.hits; }
  void count_unknown_name() { ++totals_.errors; }
  void count_over_budget() { ++totals_.over_budget_events; }
  void note_live_bytes(std::uint64_t bytes) { totals_.peak_live_bytes = std::max(totals_.peak_live_bytes, bytes); }

  const PagerStats& totals() const { return totals_; }
  // Without the hits.
  PagerStats of(std::size_t tensor) const {
    const auto found = by_tensor_.find(tensor);
    return found == by_tensor_.end() ? PagerStats{} : found->second;
  }
  void reset() { *this = Statistics(); }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  std::size_t first_tensor_ = kNone;  // the first one acquired since the last reset
  PagerStats totals_;
  std::unordered_map<std::size_t, PagerStats> by_tensor_;
};

}  // namespace weightstore::pager
