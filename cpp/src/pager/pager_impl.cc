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
      follows_memory_(options.follow_memory),
      hits_are_plain_(account_.policy() == nullptr && !options.follow_memory) {}

std::size_t PagerImpl::find(std::string_view name) {
  if (const auto tensor = table().find(name)) return *tensor;
  {
    const std::lock_guard lock(mutex_);
    statistics_.count_unknown_name();
  }
  return table().at(name);
}

// ---- references -----------------------------------------------------------------------------------------------------

void PagerImpl::hit(TensorState& state) {
  state.references.add(1);
  statistics_.take_hits(state);
  account_.states().use(state);
  statistics_.count(state, [&](PagerStats& stats) {
    ++stats.hits;
    if (state.prefetched) ++stats.prefetch_used;
  });
  if (state.prefetched) account_.states().clear_prefetched(state.tensor);
}

void PagerImpl::note_acquire(std::size_t tensor) {
  if (account_.policy() == nullptr) return;
  loads_.check_process();
  loads_.note_acquire(tensor);
}

TensorState* PagerImpl::try_acquire(std::size_t tensor) {
  if (TensorState* hit_state = try_hit(tensor)) return hit_state;
  if (follows_memory_.load(std::memory_order_relaxed)) follow_memory();
  const std::lock_guard lock(mutex_);
  TensorState& state = account_.states()[tensor];
  if (state.presence != Presence::kResident) return nullptr;
  statistics_.count_passes(tensor);
  note_acquire(tensor);
  hit(state);
  loads_.read_ahead();
  return &state;
}

bool PagerImpl::acquire_present(TensorState& state, Retired& retired) {
  if (state.presence == Presence::kResident) {
    hit(state);
    return true;
  }
  if (state.presence != Presence::kHeld || account_.is_closed()) return false;
  account_.restore_held(state, retired);
  return true;
}

TensorState& PagerImpl::acquire(std::size_t tensor, Wait wait, const Progress& progress) {
  if (TensorState* hit_state = try_hit(tensor)) return *hit_state;
  if (follows_memory_.load(std::memory_order_relaxed)) follow_memory();
  TensorState& state = account_.states()[tensor];
  Retired retired;
  Lock lock(mutex_);
  statistics_.count_passes(tensor);
  note_acquire(tensor);
  if (state.presence == Presence::kResident) {
    hit(state);
    loads_.read_ahead();
    return state;
  }
  loads_.check_process();
  Deadline deadline(wait.value_or(default_wait_), progress);
  for (auto started = deadline.begun();; started = Clock::now()) {
    account_.check_open();
    if (acquire_present(state, retired)) return state;
    LoadPtr load = loads_.begin_or_join(tensor);
    if (const Failure failure = loads_.wait(lock, load, deadline, started, retired)) {
      lock.unlock();
      failure();
    }
    const bool has_result = load->has_result;
    loads_.recycle(std::move(load));
    if (has_result) return state;
  }
}

void PagerImpl::drop_with_mutex(TensorState& state) noexcept {
  // Once this reference is gone, another thread may free the frame, and with it the pager.
  const std::shared_ptr<PagerImpl> self = state.frame->impl->shared_from_this();
  Retired retired;
  const std::lock_guard lock(self->mutex_);
  self->account_.release(state, retired);
  self->loads_.read_ahead();
}

// ---- prefetching ----------------------------------------------------------------------------------------------------

void PagerImpl::prefetch(std::span<const std::size_t> tensors) {
  std::vector<TensorState*> restored;
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
        account_.restore_held(state, retired);
        restored.push_back(&state);
      }
      if (state.presence == Presence::kAbsent) loads_.queue_prefetch(tensor);
    }
    loads_.wake_readers();
  }
  for (TensorState* state : restored) drop(*state);
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
  hits_are_plain_ = account_.policy() == nullptr && !follow;
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

PagerStats PagerImpl::stats() {
  const std::lock_guard lock(mutex_);
  TensorStates& states = account_.states();
  for (std::size_t i = 0; i < states.size(); ++i) statistics_.take_hits(states[i]);
  return statistics_.totals();
}

PagerStats PagerImpl::stats(std::size_t tensor) {
  const std::lock_guard lock(mutex_);
  TensorState& state = account_.states()[tensor];
  statistics_.take_hits(state);
  return statistics_.of(state);
}

void PagerImpl::reset_stats() {
  const std::lock_guard lock(mutex_);
  TensorStates& states = account_.states();
  for (std::size_t i = 0; i < states.size(); ++i) states[i].references.take_hits();
  statistics_.reset();
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
