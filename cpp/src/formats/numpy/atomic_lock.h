#pragma once

#include <atomic>

namespace weightstore::numpy {

// A lock for std::lock_guard that needs no library of threads, as std::mutex does.
class AtomicLock {
 public:
  void lock() {
    while (taken_.test_and_set(std::memory_order_acquire)) taken_.wait(true, std::memory_order_relaxed);
  }
  void unlock() {
    taken_.clear(std::memory_order_release);
    taken_.notify_one();
  }

 private:
  std::atomic_flag taken_;
};

}  // namespace weightstore::numpy
