#include "fork_guard.h"

#include <pthread.h>

#include <mutex>
#include <set>

namespace weightstore::python {

namespace {

struct Guarded {
  std::mutex mutex;
  std::set<Pager*> pagers;

  void before_fork() {
    mutex.lock();
    for (Pager* pager : pagers) pager->before_fork();
  }
  void after_fork() {
    for (Pager* pager : pagers) pager->after_fork();
    mutex.unlock();
  }
};

// Never destroyed: a process may still fork while it ends.
Guarded& guarded() {
  static Guarded* const all = [] {
    auto* made = new Guarded;
    ::pthread_atfork([] { guarded().before_fork(); }, [] { guarded().after_fork(); }, [] { guarded().after_fork(); });
    return made;
  }();
  return *all;
}

}  // namespace

ForkGuard::ForkGuard(Pager& pager) : pager_(pager) {
  const std::lock_guard lock(guarded().mutex);
  guarded().pagers.insert(&pager_);
}

ForkGuard::~ForkGuard() {
  const std::lock_guard lock(guarded().mutex);
  guarded().pagers.erase(&pager_);
}

}  // namespace weightstore::python
