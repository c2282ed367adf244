#include "table/gate.h"

#include <pthread.h>

#include <set>

namespace weightstore::table {

// Never destroyed: a process may still fork while it ends.
class GatesOfProcess {
 public:
  static GatesOfProcess& get() {
    static GatesOfProcess* const gates = [] {
      auto* made = new GatesOfProcess;
      ::pthread_atfork([] { get().close_all(); }, [] { get().open_all(); }, [] { get().open_all(); });
      return made;
    }();
    return *gates;
  }

  void add(Gate& gate) {
    const std::lock_guard lock(mutex_);
    gates_.insert(&gate);
  }
  void remove(Gate& gate) {
    const std::lock_guard lock(mutex_);
    gates_.erase(&gate);
  }

 private:
  // Only doors are held over the fork: a shared_mutex knows its writer by a thread number, which is another in the
  // child, so that it cannot be unlocked there. Behind a door that is held, a room that is empty once stays empty.
  void close_all() {
    mutex_.lock();
    for (Gate* gate : gates_) {
      gate->door_.lock();
      const std::lock_guard until_empty(gate->room_);
    }
  }
  void open_all() {
    for (Gate* gate : gates_) gate->door_.unlock();
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::set<Gate*> gates_;
};

Gate::Gate() { GatesOfProcess::get().add(*this); }

Gate::~Gate() { GatesOfProcess::get().remove(*this); }

}  // namespace weightstore::table
