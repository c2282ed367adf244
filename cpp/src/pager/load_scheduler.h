#pragma once

// The loads: which tensors are being read, which thread reads each of them, and who waits for the result.

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "pager/catalog.h"
#include "pager/deadline.h"
#include "pager/frame.h"
#include "pager/load.h"
#include "pager/memory_account.h"
#include "pager/reader_threads.h"
#include "pager/statistics.h"

namespace weightstore::pager {

// Keeps the loads in progress and the reader threads. All functions are called with the pager's mutex held; those that
// take the lock unlock it while they wait or read.
//
// The life of a load:
//   1. begin() marks the tensor as loading. Callers that want the same tensor join this load.
//   2. One thread runs the load: a caller, or a reader thread. It reserves memory in the account; with a strict budget
//      it may have to wait for that.
//   3. The thread reads the bytes without the mutex. Waiting callers and reader threads help with large tensors.
//   4. The thread compares the checksum, and publishes the tensor in the account. Each waiting caller gets a reference.
//
// When the reading fails, every waiting caller gets the error, and the account is as it was before. When the thread
// that runs the load gets no memory in time, or its caller cancels it, only that caller gets an error; the waiting
// callers start the load again.
class LoadScheduler : private LoadRunner {
 public:
  // All references outlive this object. Frames and reader threads keep `owner` alive.
  LoadScheduler(PagerImpl& owner, std::mutex& mutex, const Catalog& catalog, MemoryAccount& account,
                Statistics& statistics, unsigned readers);

  // The load of a tensor that is not in memory, begun now unless there is one. The caller is among its waiters, and
  // calls wait() or stop_waiting() for it.
  LoadPtr begin_or_join(std::size_t tensor);
  // Runs the load if no thread does; otherwise helps with it and waits for it. Afterwards load->has_result says that
  // there is a reference for the caller, or the returned failure says what went wrong. When there is neither, another
  // caller cancelled the load: begin again. `started` is when the caller began to wait.
  Failure wait(Lock& lock, const LoadPtr& load, Deadline& deadline, Clock::time_point started, Retired& retired);
  void stop_waiting(const LoadPtr& load, Retired& retired);
  // After wait(): the caller is done with a load.
  void recycle(LoadPtr load);
  // Lets the reader threads run some of the loads that the caller is about to wait for. Without threads it runs them
  // all.
  void share(std::span<const LoadPtr> loads);

  // Starts the reader threads. Throws Error(kIo) when the system allows none.
  void start_readers();
  void queue_prefetch(std::size_t tensor);
  void wake_readers() { readers_.wake(); }
  // Tells the policy what a caller acquires. Only when there is a policy. read_ahead() follows, as soon as the memory
  // of that tensor is reserved.
  void note_acquire(std::size_t tensor);
  // Queues tensors that the policy expects, as far as there is room. Called whenever there may be more room.
  void read_ahead();
  // Waits until no prefetch is queued or running.
  void finish_prefetch(Lock& lock, Deadline& deadline);

  // Cancels queued prefetches and stops the reader threads. The caller joins the threads without the mutex, and then
  // calls notify_idle().
  std::vector<std::thread> stop();
  void notify_idle() { readers_.idle().notify_all(); }

  // In a forked child: forgets the loads and threads of the parent. Does nothing in the process that made the pager.
  void check_process();

 private:
  LoadPtr begin(std::size_t tensor, bool prefetch);
  void run_load(Lock& lock, const LoadPtr& load) override;
  void run_prefetch(Lock& lock, std::size_t tensor) override;
  Failure run(Lock& lock, const LoadPtr& load, Deadline& deadline, Clock::time_point started);
  Failure help_and_wait(Lock& lock, const LoadPtr& load, Deadline& deadline, Retired& retired);
  // Steps of run(), without the mutex.
  std::unique_ptr<Frame> fetch(const LoadPtr& load, Deadline& deadline);
  void read_for_caller(const LoadPtr& load, Deadline& deadline);
  void read_for_prefetch(Load& load);
  // The result is there, or the load failed or was cancelled.
  void end(Load& load);
  bool try_start_readers();
  void cancel_queued_prefetches();
  bool is_ahead(std::size_t tensor) const;
  bool has_room_ahead(std::size_t tensor);
  std::uint64_t loading_bytes() const;

  PagerImpl& owner_;
  std::mutex& mutex_;
  const Catalog& catalog_;
  MemoryAccount& account_;
  Statistics& statistics_;
  std::vector<LoadPtr> loading_;  // TensorState::load is the number of an element
  LoadPtr spare_;                 // one that has ended, for the next one
  ReaderThreads readers_;
  std::size_t planned_ = 0;        // so many of the acquires that the policy expects are seen to
  std::deque<std::size_t> ahead_;  // tensors that were queued for the policy, the oldest first
  std::uint32_t forks_;            // io::fork_count() of the process that made the pager
};

}  // namespace weightstore::pager
