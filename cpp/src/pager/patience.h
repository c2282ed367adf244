#pragma once

// How long a caller waits, and who may call it off meanwhile.

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

// Of one call, on one thread.
class Patience {
 public:
  // `progress` outlives this. Time is counted from now; as much as can be asked for is for ever.
  Patience(std::chrono::milliseconds wait, const Progress& progress) : progress_(progress) {
    const auto now = Clock::now();
    const auto longest = std::chrono::floor<std::chrono::milliseconds>(Clock::time_point::max() - now);
    deadline_ = wait < longest ? now + std::max(wait, std::chrono::milliseconds(0)) : Clock::time_point::max();
    next_look_ = progress_ ? now + kInterval : Clock::time_point::max();
  }

  bool is_over() const { return Clock::now() >= deadline_; }
  // Until the condition is notified, it is time to look(), or the deadline if that counts. May return for no reason.
  void sleep(std::condition_variable& condition, Lock& lock, bool until_deadline) const {
    const auto end = until_deadline ? std::min(deadline_, next_look_) : next_look_;
    if (end == Clock::time_point::max()) {
      condition.wait(lock);
    } else {
      condition.wait_until(lock, end);
    }
  }

  bool is_time_to_look() const { return progress_ && Clock::now() >= next_look_; }
  // Asks the caller whether to go on. Throws, and has given up from then on, when not. No lock is held.
  void look(std::uint64_t done, std::uint64_t total, std::string_view name) {
    next_look_ = Clock::now() + kInterval;
    gave_up_ = true;
    if (!progress_(done, total, name)) throw Error(ErrorCode::kCancelled, "cancelled by the caller");
    gave_up_ = false;
  }
  bool gave_up() const { return gave_up_; }

 private:
  static constexpr auto kInterval = std::chrono::milliseconds(50);

  const Progress& progress_;
  Clock::time_point deadline_;
  Clock::time_point next_look_;
  bool gave_up_ = false;
};

}  // namespace weightstore::pager
