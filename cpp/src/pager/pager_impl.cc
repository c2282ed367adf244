#include "pager/pager_impl.h"

#include <utility>

#include "io/available_memory.h"
#include "pager/default_budget.h"

namespace weightstore::pager {

PagerImpl::PagerImpl(std::optional<Reader> reader, TensorTable raw_table, const PagerOptions& options)
    : catalog_(std::move(reader), std::move(raw_table), options),
      default_wait_(options.wait),
      account_(catalog_, statistics_, options),
      loads_(*this, mutex_, catalog_, account_, statistics_, options.readers),
      follows_memory_(options.follow_memory) {}

std::size_t PagerImpl::find(std::string_view name) {
  if (const auto tensor = table().find(name)) return *tensor;
  {
    const std::lock_guard lock(mutex_);
    statistics_.count_unknown_name();
  }
  return table().at(name);
}

// ---- references -----------------------------------------------------------------------------------------------------

Frame* PagerImpl::hit(std::size_t tensor) {
  TensorStates& states = account_.states();
  TensorState& state = states[tensor];
  state.frame->refs.fetch_add(1, std::memory_order_relaxed);
  states.use(state);
  ++state.hits;
  statistics_.count_hit();
  if (state.prefetched) {
    states.clear_prefetched(tensor);
    statistics_.count(tensor, [](PagerStats& stats) { ++stats.prefetch_used; });
  }
  return state.frame;
}

void PagerImpl::note_acquire(std::size_t tensor) {
  if (account_.policy() == nullptr) return;
  loads_.check_process();
  loads_.note_acquire(tensor);
}

Frame* PagerImpl::try_acquire(std::size_t tensor) {
  if (follows_memory_.load(std::memory_order_relaxed)) follow_memory();
  const std::lock_guard lock(mutex_);
  if (account_.states()[tensor].presence != Presence::kResident) return nullptr;
  statistics_.count_passes(tensor);
  note_acquire(tensor);
  Frame* frame = hit(tensor);
  loads_.read_ahead();
  return frame;
}

Frame* PagerImpl::acquire_present(std::size_t tensor, Retired& retired) {
  const Presence presence = account_.states()[tensor].presence;
  if (presence == Presence::kResident) return hit(tensor);
  if (presence == Presence::kHeld && !account_.is_closed()) return account_.restore_held(tensor, retired);
  return nullptr;
}

Frame* PagerImpl::acquire(std::size_t tensor, Wait wait, const Progress& progress) {
  if (follows_memory_.load(std::memory_order_relaxed)) follow_memory();
  Retired retired;
  Lock lock(mutex_);
  statistics_.count_passes(tensor);
  note_acquire(tensor);
  if (account_.states()[tensor].presence == Presence::kResident) {
    Frame* frame = hit(tensor);
    loads_.read_ahead();
    return frame;
  }
  loads_.check_process();
  Deadline deadline(wait.value_or(default_wait_), progress);
  for (;;) {
    account_.check_open();
    if (Frame* frame = acquire_present(tensor, retired)) return frame;
    const LoadPtr load = loads_.begin_or_join(tensor);
    if (const Failure failure = loads_.wait(lock, load, deadline, retired)) {
      lock.unlock();
      failure();
    }
    if (load->result != nullptr) return load->result;
  }
}

void PagerImpl::drop(Frame* frame) noexcept {
  if (!frame->impl->account_.strict()) {
    if (frame->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) frame->impl->drop_last(frame);
    return;
  }
  // Once this reference is gone, another thread may free the frame. So keep the pager, to notify waiting callers.
  const std::shared_ptr<PagerImpl> impl = frame->impl;
  const std::size_t tensor = frame->tensor;
  if (frame->refs.fetch_sub(1) == 1) {
    impl->drop_last(frame);
  } else if (impl->account_.has_waiters()) {
    const std::lock_guard lock(impl->mutex_);
    impl->account_.note_release(tensor);
    impl->loads_.read_ahead();
  }
}

void PagerImpl::drop_last(Frame* frame) noexcept {
  const std::shared_ptr<PagerImpl> self = frame->impl;
  Retired retired;
  const std::lock_guard lock(mutex_);
  account_.remove(frame, retired);
  loads_.read_ahead();
}

// ---- prefetching ----------------------------------------------------------------------------------------------------

void PagerImpl::prefetch(std::span<const std::size_t> tensors) {
  std::vector<Frame*> restored;
  Retired retired;
  {
    const std::lock_guard lock(mutex_);
    account_.check_open();
    loads_.start_readers();
    TensorStates& states = account_.states();
    for (const std::size_t tensor : tensors) {
      TensorState& state = states[tensor];
      if (state.presence == Presence::kResident) states.use(state);
      if (state.presence == Presence::kHeld) {
        if (Frame* frame = account_.restore_held(tensor, retired)) restored.push_back(frame);
      }
      if (state.presence == Presence::kAbsent) loads_.queue_prefetch(tensor);
    }
    loads_.wake_readers();
  }
  for (Frame* frame : restored) drop(frame);
}

void PagerImpl::finish_prefetch(const Progress& progress) {
  Lock lock(mutex_);
  loads_.check_process();
  Deadline deadline(std::chrono::milliseconds::max(), progress);
  loads_.finish_prefetch(lock, deadline);
}

// ---- the account ----------------------------------------------------------------------------------------------------

void PagerImpl::pin(std::size_t tensor) {
  const std::lock_guard lock(mutex_);
  account_.pin(tensor);
}

void PagerImpl::unpin(std::size_t tensor) {
  const std::lock_guard lock(mutex_);
  account_.unpin(tensor);
}

bool PagerImpl::evict(std::size_t tensor) {
  Retired retired;
  const std::lock_guard lock(mutex_);
  return account_.evict(tensor, retired);
}

std::size_t PagerImpl::clear() {
  Retired retired;
  const std::lock_guard lock(mutex_);
  return account_.clear(retired);
}

void PagerImpl::set_budget(std::uint64_t bytes, bool follow) {
  Retired retired;
  const std::lock_guard lock(mutex_);
  follows_memory_ = follow;
  account_.set_budget(bytes, retired);
}

void PagerImpl::follow_memory() {
  const auto now = Clock::now().time_since_epoch().count();
  auto look = next_look_.load(std::memory_order_relaxed);
  const auto next = now + std::chrono::duration_cast<Clock::duration>(kLookInterval).count();
  if (now < look || !next_look_.compare_exchange_strong(look, next)) return;
  const std::uint64_t available = io::available_memory(io::Swap::kIgnored);
  Retired retired;
  const std::lock_guard lock(mutex_);
  if (!follows_memory_ || account_.is_closed()) return;
  const auto budget = followed_budget(account_.budget(), account_.live_bytes(), available);
  if (budget) account_.set_budget(*budget, retired);
}

PagerStats PagerImpl::stats() const {
  const std::lock_guard lock(mutex_);
  return statistics_.totals();
}

PagerStats PagerImpl::stats(std::size_t tensor) const {
  const std::lock_guard lock(mutex_);
  PagerStats stats = statistics_.of(tensor);
  stats.hits = account_.states()[tensor].hits;
  return stats;
}

void PagerImpl::reset_stats() {
  const std::lock_guard lock(mutex_);
  statistics_.reset();
  TensorStates& states = account_.states();
  for (std::size_t i = 0; i < states.size(); ++i) states[i].hits = 0;
  statistics_.note_live_bytes(account_.live_bytes());
}

// ---- the end, and forks ---------------------------------------------------------------------------------------------

void PagerImpl::close() {
  std::vector<std::thread> readers;
  {
    const std::lock_guard lock(mutex_);
    loads_.check_process();
    account_.close();
    readers = loads_.stop();
  }
  for (std::thread& reader : readers) {
    if (reader.get_id() == std::this_thread::get_id()) {
      reader.detach();
    } else {
      reader.join();
    }
  }
  Retired retired;
  const std::lock_guard lock(mutex_);
  loads_.notify_idle();
  account_.evict_all(retired);
}

void PagerImpl::after_fork() {
  loads_.check_process();
  mutex_.unlock();
}

}  // namespace weightstore::pager
