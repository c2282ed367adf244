#pragma once

// The pager's counters.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>

#include "pager/tensor_state.h"
#include "weightstore/pager.h"

namespace weightstore::pager {

// Counts for the whole pager and for each tensor. The caller holds the pager's mutex, except for count_passes().
//
// A hit must be cheap: tensors count their hits themselves (References), and take_hits() collects them. There are
// counters here only for tensors that were loaded or prefetched at least once.
class Statistics {
 public:
  // Calls `change` with the counters of the pager, and with those of the tensor.
  template <class Change>
  void count(TensorState& state, Change change) {
    change(totals_);
    change(made_for(state));
  }

  // A pass begins whenever a caller acquires the tensor that was acquired first.
  void count_passes(std::size_t tensor) {
    std::size_t first = first_tensor_.load(std::memory_order_relaxed);
    if (first == tensor) {
      passes_.fetch_add(1, std::memory_order_relaxed);
    } else if (first == kNone) {
      first_tensor_.compare_exchange_strong(first, tensor, std::memory_order_relaxed);
    }
  }
  void take_hits(TensorState& state) {
    if (const std::uint64_t hits = state.references.take_hits()) {
      count(state, [&](PagerStats& stats) { stats.hits += hits; });
    }
  }
  // Counters that only the whole pager has, not each tensor.
  void count_unknown_name() { ++totals_.errors; }
  void count_over_budget() { ++totals_.over_budget_events; }
  void note_live_bytes(std::uint64_t bytes) { totals_.peak_live_bytes = std::max(totals_.peak_live_bytes, bytes); }

  // Both after take_hits().
  PagerStats totals() const {
    PagerStats stats = totals_;
    stats.pass_count = passes_.load(std::memory_order_relaxed);
    return stats;
  }
  static PagerStats of(const TensorState& state) { return state.stats == nullptr ? PagerStats{} : *state.stats; }
  void reset() {
    totals_ = {};
    for (PagerStats& stats : by_tensor_) stats = {};
    passes_ = 0;
    first_tensor_ = kNone;
  }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  PagerStats& made_for(TensorState& state) {
    if (state.stats == nullptr) state.stats = &by_tensor_.emplace_back();
    return *state.stats;
  }

  std::atomic<std::size_t> first_tensor_{kNone};  // the first one acquired since the last reset
  std::atomic<std::uint64_t> passes_{0};
  PagerStats totals_;
  std::deque<PagerStats> by_tensor_;  // states point to the elements
};

}  // namespace weightstore::pager
