#pragma once

// Waiting on a condition variable without std::condition_variable::wait(): GCC 12 calls that by a symbol that the
// libstdc++ of GCC 11 lacks, and it would be the only one. Without it, what GCC 12 builds runs with both.

#include <pthread.h>

#include <condition_variable>
#include <mutex>

namespace weightstore::io {

// Atomically unlocks and sleeps until another thread notifies `condition`; may wake up early. `lock` is locked again.
inline void wait(std::condition_variable& condition, std::unique_lock<std::mutex>& lock) {
  ::pthread_cond_wait(condition.native_handle(), lock.mutex()->native_handle());
}

// The same until `is_true()`.
template <class Predicate>
void wait(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, Predicate is_true) {
  while (!is_true()) wait(condition, lock);
}

}  // namespace weightstore::io
