#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

namespace weightstore::io {

// Decides whether huge pages are worth what they cost. Each quick one saves the difference to the small pages that it
// replaces, and each slow one takes from what was saved. Huge pages cost too much once the slow ones took kMostLost
// more than small pages would have; that does not change again. Thread-safe.
class PageCosts {
 public:
  using Time = std::chrono::nanoseconds;
  // Of the small pages in place of a huge one, measured with two threads that touch memory: 0.54 to 0.69 ms.
  static constexpr Time kSmallPages = std::chrono::microseconds(500);
  static constexpr Time kMostLost = std::chrono::milliseconds(8);

  // A huge page took so much processor time. Returns whether this is the call that made them cost too much.
  bool add(Time huge_page) {
    const Time::rep more = (huge_page - kSmallPages).count();
    Time::rep before = lost_.load(std::memory_order_relaxed);
    Time::rep after;
    do {
      if (before > kMostLost.count()) return false;
      // What was saved long ago does not count: it says little about the pages that come next.
      after = std::max<Time::rep>(before + more, -kMostLost.count());
    } while (!lost_.compare_exchange_weak(before, after, std::memory_order_relaxed));
    return after > kMostLost.count();
  }

  bool are_too_high() const { return lost_.load(std::memory_order_relaxed) > kMostLost.count(); }

 private:
  std::atomic<Time::rep> lost_{0};
};

}  // namespace weightstore::io
