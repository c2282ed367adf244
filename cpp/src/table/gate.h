#pragma once

// The lock in front of a hash table, and what fork(2) does to it.

#include <mutex>
#include <shared_mutex>

namespace weightstore::table {

// A shared lock that does not let those starve who want to be alone: they wait at the door, and nobody passes them.
//
// fork(2) copies a lock as it is, but only the thread that forks: a lock that another thread holds at that moment stays
// locked in the child for ever, and what it guards stays half changed. So a thread that forks first closes every gate
// of the process, waits until nobody is behind any, and opens them again afterwards, in the parent and in the child. No
// thread may fork while it is behind a gate.
class Gate {
 public:
  Gate();
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  [[nodiscard]] std::shared_lock<std::shared_mutex> together() {
    const std::lock_guard door(door_);
    return std::shared_lock(room_);
  }
  [[nodiscard]] std::unique_lock<std::shared_mutex> alone() {
    const std::lock_guard door(door_);
    return std::unique_lock(room_);
  }

 private:
  friend class GatesOfProcess;

  std::mutex door_;
  std::shared_mutex room_;
};

}  // namespace weightstore::table
