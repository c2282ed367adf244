#pragma once

// The pager's own threads. They prefetch, and they help callers that wait for a load.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "pager/deadline.h"
#include "pager/load.h"

namespace weightstore::pager {

// What the threads do with a load. Called with the pager's mutex held; unlocks it while it reads.
class LoadRunner {
 public:
  // Runs a load of acquire_many() that no thread runs yet.
  virtual void run_load(Lock& lock, const LoadPtr& load) = 0;
  // Loads a tensor of the prefetch queue, unless that is no longer wanted or there is no room.
  virtual void run_prefetch(Lock& lock, std::size_t tensor) = 0;

 protected:
  ~LoadRunner() = default;
};

// Keeps the threads and their three queues: chunks of loads that callers wait for, loads that callers wait for, and
// tensors to prefetch. The threads empty the queues in this order.
//
// All functions are called with the pager's mutex held, except has_demand().
class ReaderThreads {
 public:
  // `runner` and `mutex` outlive this object. `count` threads start when they are first needed.
  ReaderThreads(LoadRunner& runner, std::mutex& mutex, unsigned count);

  // Starts the threads unless they run already or stop() was called. The threads keep `owner` alive. Throws Error(kIo)
  // when the system allows not even one thread.
  void start(const std::shared_ptr<void>& owner);

  // Lets the threads read chunks of a load that a caller runs.
  void share_chunks(const LoadPtr& load);
  // Lets the threads run loads that no thread runs yet.
  void share_loads(std::span<const LoadPtr> loads);
  void queue_prefetch(std::size_t tensor);
  // Wakes the threads after queue_prefetch().
  void wake() { work_->notify_all(); }

  // Whether a caller waits for work in the first two queues. A thread that prefetches asks this between chunks, without
  // the mutex.
  bool has_demand() const { return demand_.load(std::memory_order_relaxed) > 0; }
  // Does one piece of work of the first two queues; false when they are empty. Unlocks the mutex meanwhile.
  bool help(Lock& lock);

  // Prefetches that are queued or running.
  std::size_t prefetches_left() const { return prefetch_queue_.size() + prefetching_; }
  const std::deque<std::size_t>& queued_prefetches() const { return prefetch_queue_; }
  // Is notified when no prefetches are left.
  std::condition_variable& idle() { return *idle_; }

  // Empties the prefetch queue and returns its tensors.
  std::vector<std::size_t> cancel_prefetches();
  // Tells the threads to end after the work they have begun. The caller joins the returned threads without the mutex.
  std::vector<std::thread> stop();
  // After a fork: forgets the threads, and the work they shared, of the parent process.
  void abandon_threads();

 private:
  void run();

  LoadRunner& runner_;
  std::mutex& mutex_;
  const unsigned count_;
  std::vector<std::thread> threads_;
  bool stopping_ = false;
  std::unique_ptr<std::condition_variable> work_;
  std::unique_ptr<std::condition_variable> idle_;
  std::deque<LoadPtr> chunk_queue_;
  std::deque<LoadPtr> load_queue_;
  std::deque<std::size_t> prefetch_queue_;
  std::size_t prefetching_ = 0;         // tensors that a thread took from the prefetch queue and is not done with
  std::atomic<std::size_t> demand_{0};  // the entries of chunk_queue_ and load_queue_
};

}  // namespace weightstore::pager
