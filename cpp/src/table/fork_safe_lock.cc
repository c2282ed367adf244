#include "table/fork_safe_lock.h"

#include <pthread.h>

#include <set>

namespace weightstore::table {

// Never destroyed, because a process may fork while it exits.
class LocksOfProcess {
 public:
  static LocksOfProcess& get() {
    static LocksOfProcess* const locks = [] {
      auto* made = new LocksOfProcess;
      ::pthread_atfork([] { get().close_all(); }, [] { get().open_all(); }, [] { get().open_all(); });
      return made;
    }();
    return *locks;
  }

  void add(ForkSafeLock& added) {
    const std::lock_guard lock(mutex_);
    locks_.insert(&added);
  }
  void remove(ForkSafeLock& removed) {
    const std::lock_guard lock(mutex_);
    locks_.erase(&removed);
  }

 private:
  // Only doors are locked during the fork. A shared_mutex remembers its writer by a thread number, which is another one
  // in the child, so that the child could not unlock it. While its door is locked, an empty room stays empty.
  void close_all() {
    mutex_.lock();
    for (ForkSafeLock* lock : locks_) {
      lock->door_.lock();
      const std::lock_guard until_empty(lock->room_);
    }
  }
  void open_all() {
    for (ForkSafeLock* lock : locks_) lock->door_.unlock();
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::set<ForkSafeLock*> locks_;
};

ForkSafeLock::ForkSafeLock() { LocksOfProcess::get().add(*this); }

ForkSafeLock::~ForkSafeLock() { LocksOfProcess::get().remove(*this); }

}  // namespace weightstore::table
