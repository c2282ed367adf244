#pragma once

// Finds out whether tensors are acquired in the same order again and again.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weightstore::pager {

// Compares each acquire with the one that was `period()` acquires earlier. When they differ, the time since the same
// tensor was last acquired is the new period to try.
class CycleDetector {
 public:
  // Periods are at most four times the number of tensors, and a little more.
  explicit CycleDetector(std::size_t tensors);

  void add(std::size_t tensor);

  // The period that is tried; 0 when there is none.
  std::size_t period() const { return period_; }
  // How many of the last acquires were the same as one period earlier.
  std::size_t matched() const { return matched_; }
  // Whether everything so far is one pass and the beginning of the second: the acquires match from the beginning, or
  // nearly. (A tensor at the end of a pass and at the beginning of the next one looks like a period of 1 at first.)
  bool is_second_pass() const { return count_ - (period_ + matched_) <= 2; }
  // The last period() acquires.
  std::vector<std::uint32_t> last_period() const;

 private:
  std::uint32_t at(std::uint64_t number) const { return history_[number % history_.size()]; }

  std::vector<std::uint32_t> history_;  // a ring
  std::vector<std::uint64_t> last_;     // by tensor, one more than the number of its last acquire; 0: never
  std::uint64_t count_ = 0;
  std::size_t period_ = 0;
  std::size_t matched_ = 0;
};

}  // namespace weightstore::pager
