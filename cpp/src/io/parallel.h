#pragma once

#include <atomic>
#include <functional>

namespace weightstore::io {

// Shared between the workers of one operation. Thread-safe.
class StopFlag {
 public:
  void set() { stopped_.store(true, std::memory_order_relaxed); }
  bool is_set() const { return stopped_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> stopped_{false};
};

// Calls work(worker, stop) on `workers` threads, and watch() on the calling thread about every 50 ms until they are
// done. The first exception of any of them sets `stop`, which workers look at between steps, and is thrown again here
// when all have ended.
void run_parallel(unsigned workers, const std::function<void(unsigned worker, const StopFlag& stop)>& work,
                  const std::function<void()>& watch = {});

// Threads that bulk operations use when the caller does not say: the processors this process may run on, 2 to 8.
unsigned default_threads();

}  // namespace weightstore::io
