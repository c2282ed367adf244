// The threads that read ahead, and that help those who wait.

#include <unistd.h>

#include <system_error>
#include <utility>

#include "pager/core.h"

namespace weightstore::pager {

void Core::start_readers(Lock&) {
  if (process_ != ::getpid()) adopt_after_fork();
  if (!readers_.empty() || stopping_) return;
  try {
    // The threads keep the core alive: the last handle may be dropped by one of them.
    while (readers_.size() < reader_count_) readers_.emplace_back([self = shared_from_this()] { self->read_loop(); });
  } catch (const std::system_error& error) {
    if (!readers_.empty()) return;
    throw Error(ErrorCode::kIo, "cannot start a thread to read with").with_errno(error.code().value());
  }
}

void Core::read_loop() {
  Lock lock(mutex_);
  for (;;) {
    work_->wait(lock,
                [&] { return stopping_ || demand_.load(std::memory_order_relaxed) > 0 || !prefetch_queue_.empty(); });
    if (stopping_) return;
    if (help(lock)) continue;
    if (!prefetch_queue_.empty()) {
      const std::size_t i = prefetch_queue_.front();
      prefetch_queue_.pop_front();
      run_queued(lock, i);
    }
    if (prefetch_queue_.empty() && prefetching_ == 0) idle_->notify_all();
  }
}

bool Core::help(Lock& lock) {
  // Loads are let go without the mutex: what went wrong with one may belong to Python, whose lock comes first.
  while (!to_help_.empty()) {
    LoadPtr load = to_help_.front();
    const bool useful = load->has_chunks();
    if (!useful) {
      to_help_.pop_front();
      --demand_;
    }
    lock.unlock();
    if (useful) load->read();
    load.reset();
    lock.lock();
    if (useful) return true;
  }
  while (!demanded_.empty()) {
    LoadPtr load = std::move(demanded_.front());
    demanded_.pop_front();
    --demand_;
    const bool useful = !load->led;  // by the one who asked for it
    if (useful) lead_alone(lock, load);
    lock.unlock();
    load.reset();
    lock.lock();
    if (useful) return true;
  }
  return false;
}

void Core::lead_alone(Lock& lock, const LoadPtr& load) {
  const Progress nobody;
  Patience patience(std::chrono::milliseconds(0), nobody);
  lead(lock, load, patience);
}

void Core::ask_for_help(const LoadPtr& load) {
  Lock lock(mutex_);
  try {
    start_readers(lock);
  } catch (const Error&) {
    return;  // then without
  }
  to_help_.push_back(load);
  ++demand_;
  work_->notify_all();
}

void Core::share(Lock& lock, std::span<const LoadPtr> loads) {
  try {
    start_readers(lock);
  } catch (const Error&) {
    return;
  }
  demanded_.insert(demanded_.end(), loads.begin(), loads.end());
  demand_ += loads.size();
  work_->notify_all();
}

void Core::close() {
  std::vector<std::thread> readers;
  {
    Lock lock(mutex_);
    if (process_ != ::getpid()) adopt_after_fork();
    closed_ = true;
    stopping_ = true;
    for (const std::size_t i : prefetch_queue_) {
      if (slots_[i].presence == Presence::kQueued) slots_[i].presence = Presence::kAbsent;
    }
    prefetch_queue_.clear();
    readers = std::exchange(readers_, {});
    work_->notify_all();
    room_->notify_all();
  }
  for (std::thread& reader : readers) {
    if (reader.get_id() == std::this_thread::get_id()) {
      reader.detach();
    } else {
      reader.join();
    }
  }
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  idle_->notify_all();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].presence == Presence::kResident) evict_slot(i, garbage);
  }
  trim(0, garbage);
}

void Core::after_fork() {
  if (process_ != ::getpid()) adopt_after_fork();
  mutex_.unlock();
}

void Core::adopt_after_fork() {
  // Nobody is left to lead these loads, to wait at these conditions or to end these threads. What belongs to threads of
  // the parent is left alone for good: its state may be anything, and even its destructors could wait for ever.
  struct Parent {
    std::unordered_map<std::size_t, LoadPtr> loading;
    std::deque<LoadPtr> to_help;
    std::deque<LoadPtr> demanded;
    std::vector<std::thread> readers;
  };
  auto* parent = new Parent{std::exchange(loading_, {}), std::exchange(to_help_, {}), std::exchange(demanded_, {}),
                            std::exchange(readers_, {})};
  for (const auto& [i, load] : parent->loading) {
    live_bytes_ -= load->charge;
    slots_[i].presence = Presence::kAbsent;
  }
  for (const std::size_t i : prefetch_queue_) {
    if (slots_[i].presence == Presence::kQueued) slots_[i].presence = Presence::kAbsent;
  }
  prefetch_queue_.clear();
  prefetching_ = 0;
  demand_ = 0;
  room_waiters_ = 0;
  for (auto* condition : {&room_, &work_, &idle_}) {
    (void)condition->release();
    *condition = std::make_unique<std::condition_variable>();
  }
  process_ = ::getpid();
}

}  // namespace weightstore::pager
