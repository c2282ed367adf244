#include "pager/reader_threads.h"

#include <system_error>
#include <utility>

#include "weightstore/error.h"

namespace weightstore::pager {

ReaderThreads::ReaderThreads(LoadRunner& runner, std::mutex& mutex, unsigned count)
    : runner_(runner),
      mutex_(mutex),
      count_(count),
      work_(std::make_unique<std::condition_variable>()),
      idle_(std::make_unique<std::condition_variable>()) {}

void ReaderThreads::start(const std::shared_ptr<void>& owner) {
  if (!threads_.empty() || stopping_) return;
  try {
    while (threads_.size() < count_) threads_.emplace_back([this, owner] { run(); });
  } catch (const std::system_error& error) {
    if (!threads_.empty()) return;
    throw Error(ErrorCode::kIo, "cannot start a reader thread").with_errno(error.code().value());
  }
}

void ReaderThreads::run() {
  Lock lock(mutex_);
  for (;;) {
    work_->wait(lock, [&] { return stopping_ || has_demand() || !prefetch_queue_.empty(); });
    if (stopping_) return;
    if (help(lock)) continue;
    if (!prefetch_queue_.empty()) {
      const std::size_t tensor = prefetch_queue_.front();
      prefetch_queue_.pop_front();
      ++prefetching_;
      runner_.run_prefetch(lock, tensor);
      --prefetching_;
    }
    if (prefetches_left() == 0) idle_->notify_all();
  }
}

bool ReaderThreads::help(Lock& lock) {
  // A load is destroyed without the mutex: its error may be a Python object, whose destructor takes the GIL. Threads
  // take the GIL before the mutex, never the other way round.
  while (!chunk_queue_.empty()) {
    LoadPtr load = chunk_queue_.front();
    const bool has_chunks = load->has_chunks();
    if (!has_chunks) {
      chunk_queue_.pop_front();
      --demand_;
    }
    lock.unlock();
    if (has_chunks) load->read();
    load.reset();
    lock.lock();
    if (has_chunks) return true;
  }
  while (!load_queue_.empty()) {
    LoadPtr load = std::move(load_queue_.front());
    load_queue_.pop_front();
    --demand_;
    const bool is_free = !load->is_running;  // the caller runs its loads itself when no thread does
    if (is_free) runner_.run_load(lock, load);
    lock.unlock();
    load.reset();
    lock.lock();
    if (is_free) return true;
  }
  return false;
}

void ReaderThreads::share_chunks(const LoadPtr& load) {
  chunk_queue_.push_back(load);
  ++demand_;
  wake();
}

void ReaderThreads::share_loads(std::span<const LoadPtr> loads) {
  load_queue_.insert(load_queue_.end(), loads.begin(), loads.end());
  demand_ += loads.size();
  wake();
}

void ReaderThreads::queue_prefetch(std::size_t tensor) { prefetch_queue_.push_back(tensor); }

std::vector<std::size_t> ReaderThreads::cancel_prefetches() {
  const auto queue = std::exchange(prefetch_queue_, {});
  return {queue.begin(), queue.end()};
}

std::vector<std::thread> ReaderThreads::stop() {
  stopping_ = true;
  wake();
  return std::exchange(threads_, {});
}

void ReaderThreads::abandon_threads() {
  // These objects are never destroyed: threads that exist only in the parent may have been changing them, and a
  // destructor could wait for such a thread for ever.
  struct Parent {
    std::vector<std::thread> threads;
    std::deque<LoadPtr> chunk_queue;
    std::deque<LoadPtr> load_queue;
  };
  (void)new Parent{std::exchange(threads_, {}), std::exchange(chunk_queue_, {}), std::exchange(load_queue_, {})};
  for (auto* condition : {&work_, &idle_}) {
    (void)condition->release();
    *condition = std::make_unique<std::condition_variable>();
  }
  prefetching_ = 0;
  demand_ = 0;
}

}  // namespace weightstore::pager
