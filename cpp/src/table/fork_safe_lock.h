#pragma once

// The lock of a hash table, which also works with fork(2).

#include <mutex>
#include <shared_mutex>

namespace weightstore::table {

// A shared lock in which writers do not starve: a thread that calls exclusive() holds the door while it waits, so that
// no other thread can enter.
//
// fork(2) copies locks in their current state, but only the thread that forks. A lock that another thread holds at that
// moment would stay locked in the child forever, and the data that it guards would stay half changed. Therefore a
// thread that forks first takes every such lock of the process, and waits until nobody holds one. It releases them
// after the fork, in the parent and in the child. No thread may fork while it holds such a lock.
class ForkSafeLock {
 public:
  ForkSafeLock();
  ~ForkSafeLock();
  ForkSafeLock(const ForkSafeLock&) = delete;
  ForkSafeLock& operator=(const ForkSafeLock&) = delete;

  [[nodiscard]] std::shared_lock<std::shared_mutex> shared() {
    const std::lock_guard door(door_);
    return std::shared_lock(room_);
  }
  [[nodiscard]] std::unique_lock<std::shared_mutex> exclusive() {
    const std::lock_guard door(door_);
    return std::unique_lock(room_);
  }

 private:
  friend class LocksOfProcess;

  std::mutex door_;
  std::shared_mutex room_;
};

}  // namespace weightstore::table
