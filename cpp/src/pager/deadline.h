#pragma once

// How long a caller of the pager waits, and whether it still wants to.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "weightstore/error.h"
#include "weightstore/progress.h"

namespace weightstore::pager {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

// The deadline of one call, and its progress callback, which can cancel the call. Used by one thread.
class Deadline {
 public:
  // The time counts from now; milliseconds::max() is no deadline at all. `progress` outlives this object.
  Deadline(std::chrono::milliseconds wait, const Progress& progress) : progress_(progress), begun_(Clock::now()) {
    const auto longest = std::chrono::floor<std::chrono::milliseconds>(Clock::time_point::max() - begun_);
    deadline_ = wait < longest ? begun_ + std::max(wait, std::chrono::milliseconds(0)) : Clock::time_point::max();
    next_report_ = progress_ ? begun_ + kInterval : Clock::time_point::max();
  }

  Clock::time_point begun() const { return begun_; }

  bool has_passed() const { return Clock::now() >= deadline_; }

  // Sleeps until another thread notifies `condition`, a report is due or, with `until_deadline`, the deadline passes.
  // May wake up early.
  void sleep(std::condition_variable& condition, Lock& lock, bool until_deadline) const {
    const auto end = until_deadline ? std::min(deadline_, next_report_) : next_report_;
    if (end == Clock::time_point::max()) {
      condition.wait(lock);
    } else {
      condition.wait_until(lock, end);
    }
  }

  // A report is due every 50 ms when there is a callback.
  bool is_report_due() const { return progress_ && Clock::now() >= next_report_; }
  // Calls the callback; the caller holds no lock. Throws Error(kCancelled) when the callback returns false, and
  // whatever the callback throws. In both cases the call is cancelled.
  void report(std::uint64_t done, std::uint64_t total, std::string_view name) {
    next_report_ = Clock::now() + kInterval;
    is_cancelled_ = true;
    if (!progress_(done, total, name)) throw Error(ErrorCode::kCancelled, "cancelled by the caller");
    is_cancelled_ = false;
  }
  bool is_cancelled() const { return is_cancelled_; }

 private:
  static constexpr auto kInterval = std::chrono::milliseconds(50);

  const Progress& progress_;
  const Clock::time_point begun_;
  Clock::time_point deadline_;
  Clock::time_point next_report_;
  bool is_cancelled_ = false;
};

}  // namespace weightstore::pager
