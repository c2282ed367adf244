#pragma once

// Threads for one operation: they start when it begins and have ended when it returns.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <type_traits>

namespace weightstore::io {

// Shared between the workers of one operation. Thread-safe.
class StopFlag {
 public:
  void set() { stopped_.store(true, std::memory_order_relaxed); }
  bool is_set() const { return stopped_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> stopped_{false};
};

// Threads that bulk operations use when the caller does not say: the processors this process may run on, 2 to 8.
unsigned default_threads();

// Calls work(worker, stop) on `workers` threads, and watch() on the calling thread about every 50 ms until they are
// done. Without a watch the calling thread is the first of them: where there are as many processors as threads, the
// scheduler would place two new threads on one processor while the caller, which waits, still has the other. The first
// exception of any of them sets `stop`, which workers look at between steps, and is thrown again here when all have
// ended.
void run_parallel(unsigned workers, const std::function<void(unsigned worker, const StopFlag& stop)>& work,
                  const std::function<void()>& watch = {});

// The thread that parallel_for() calls from.
struct Worker {
  unsigned number;       // below the number of threads
  const StopFlag& stop;  // set when another worker failed: long work looks at it and returns
};

// Calls work(index), or work(index, worker), once for every index below `count`. Each of up to `threads` threads (0:
// default_threads()) takes the next index when it is done with one. One thread without a watch is the calling thread.
// Exceptions and watch() are as in run_parallel(): after the first exception no further index is taken.
template <class Work>
void parallel_for(std::size_t count, unsigned threads, const Work& work, const std::function<void()>& watch = {}) {
  const auto call = [&](std::size_t index, [[maybe_unused]] const Worker& worker) {
    if constexpr (std::is_invocable_v<const Work&, std::size_t, const Worker&>) {
      work(index, worker);
    } else {
      work(index);
    }
  };
  if (threads == 0) threads = default_threads();
  threads = static_cast<unsigned>(std::min<std::size_t>(threads, count));
  if (threads <= 1 && !watch) {
    const StopFlag never;
    for (std::size_t i = 0; i < count; ++i) call(i, {0, never});
    return;
  }
  std::atomic<std::size_t> next = 0;
  const auto take_all = [&](unsigned number, const StopFlag& stop) {
    while (!stop.is_set()) {
      const std::size_t index = next.fetch_add(1, std::memory_order_relaxed);
      if (index >= count) return;
      call(index, {number, stop});
    }
  };
  run_parallel(threads, take_all, watch);
}

}  // namespace weightstore::io
