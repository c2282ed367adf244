#include "io/locks/fork_closed.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>
#include <shared_mutex>

#include "io/checked_io.h"

namespace weightstore::io {
namespace {

// Calls are inside the room together. A thread that forks locks the door and waits until the room is empty. Only the
// door is locked during the fork: a shared_mutex knows its owner by a thread number, which is another one in the child.
// Never destroyed: threads may still own descriptors when the process ends.
class ForkClosedDescriptors {
 public:
  static ForkClosedDescriptors& all() {
    static ForkClosedDescriptors& descriptors = *new ForkClosedDescriptors;
    return descriptors;
  }

  // Adds the descriptor that `open` returns, unless that failed.
  template <class Open>
  int open(const Open& open) {
    const auto inside = enter();
    const int fd = open();
    const int error = errno;
    if (fd >= 0) {
      const std::lock_guard lock(set_mutex_);
      fds_.insert(fd);
    }
    errno = error;
    return fd;
  }

  template <class Close>
  int close(int fd, const Close& close) {
    const auto inside = enter();
    {
      const std::lock_guard lock(set_mutex_);
      fds_.erase(fd);
    }
    return close();
  }

 private:
  ForkClosedDescriptors() {
    ::pthread_atfork([] { all().before_fork(); }, [] { all().door_.unlock(); }, [] { all().close_in_child(); });
  }

  std::shared_lock<std::shared_mutex> enter() {
    const std::lock_guard door(door_);
    return std::shared_lock(room_);
  }
  void before_fork() {
    door_.lock();
    const std::lock_guard until_empty(room_);
  }
  void close_in_child() {
    for (const int fd : fds_) system_file_ops().close(fd);  // a test's file system may wait for threads of the parent
    fds_.clear();
    door_.unlock();
  }

  std::mutex door_;
  std::shared_mutex room_;
  std::mutex set_mutex_;
  std::set<int> fds_;
};

}  // namespace

int open_fork_closed(const std::string& path, int flags, mode_t mode, FileOps& ops) {
  return ForkClosedDescriptors::all().open(
      [&] { return retry_interrupted([&] { return ops.open(path.c_str(), flags, mode); }); });
}

int duplicate_fork_closed(int fd, FileOps& ops) {
  return ForkClosedDescriptors::all().open([&] { return retry_interrupted([&] { return ops.dup(fd); }); });
}

int close_fork_closed(int fd, FileOps& ops) {
  return ForkClosedDescriptors::all().close(fd, [&] { return ops.close(fd); });
}

}  // namespace weightstore::io
