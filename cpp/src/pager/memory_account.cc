#include "pager/memory_account.h"

#include <algorithm>
#include <utility>

namespace weightstore::pager {

namespace {

// The window of a policy is a quarter of the budget, but not more than this unless large tensors need it.
constexpr std::uint64_t kUsualWindow = std::uint64_t{64} << 20;

constexpr std::uint64_t kLargestSpare = 8 << 10;

std::unique_ptr<Policy> policy_for(const Catalog& catalog, const PagerOptions& options) {
  if (options.policy == EvictionPolicy::kLru) return nullptr;
  const TensorTable& table = catalog.table();
  std::vector<std::uint64_t> charges(table.size());
  for (std::size_t i = 0; i < charges.size(); ++i) charges[i] = catalog.charge(i);
  std::vector<std::uint32_t> order;
  for (const std::string& name : options.schedule) order.push_back(static_cast<std::uint32_t>(table.at(name)));
  return make_policy(options.policy, std::move(charges), std::move(order));
}

}  // namespace

MemoryAccount::MemoryAccount(const Catalog& catalog, Statistics& statistics, const PagerOptions& options)
    : strict_(options.strict),
      states_(catalog.table()),
      catalog_(catalog),
      statistics_(statistics),
      budget_(options.budget),
      pool_limit_(2 * catalog.largest_buffer()),
      room_(std::make_unique<std::condition_variable>()),
      least_window_(options.window != 0 ? options.window : 2 * catalog.largest_buffer()),
      policy_(policy_for(catalog, options)) {
  tell_room();
}

std::uint64_t MemoryAccount::over_budget_bytes() const {
  const std::uint64_t counted = strict_ ? live_bytes_ : states_.resident_bytes();
  return counted - std::min(counted, budget_);
}

// ---- references -----------------------------------------------------------------------------------------------------

void MemoryAccount::restore_held(TensorState& state, Retired& retired) {
  --held_count_;
  state.references.add(1);
  if (!strict_) evict_for(state.bytes.size(), {}, retired);
  states_.insert(state.tensor, false);
  statistics_.count(state, [](PagerStats& stats) { ++stats.resurrected; });
}

void MemoryAccount::release(TensorState& state, Retired& retired) {
  if (state.references.release() == 0 && state.presence == Presence::kHeld) {
    --held_count_;
    state.presence = Presence::kAbsent;
    retire(state, retired);
  }
  states_.unpark(state);
  notify_waiters();
}

void MemoryAccount::retire(TensorState& state, Retired& retired) {
  std::unique_ptr<Frame> frame(std::exchange(state.frame, nullptr));
  if (--frame_count_ == 0) retired.add(std::exchange(owner_, nullptr));
  const std::uint64_t capacity = frame->buffer.bytes.size();
  if (spare_ == nullptr && capacity > 0 && capacity <= kLargestSpare && !closed_) {
    live_bytes_ -= frame->charge;
    spare_ = std::move(frame);
    return;
  }
  give_back(frame->charge, std::exchange(frame->buffer, {}), retired);
  retired.add_frame(std::move(frame));
}

void MemoryAccount::give_back(std::uint64_t charge, SharedMutableBytes buffer, Retired& retired) {
  if (buffer.owner != nullptr && charge >= BufferPool::kPooled && !closed_) {
    pool_.put(std::move(buffer));
    if (!strict_) shrink_pool(pool_limit_, retired);
    return;
  }
  live_bytes_ -= charge;
  if (buffer.owner != nullptr) retired.add(std::move(buffer.owner));
}

void MemoryAccount::shrink_pool(std::uint64_t most, Retired& retired) {
  while (pool_.free_bytes() > most) live_bytes_ -= pool_.drop_one(retired);
}

// ---- loads ----------------------------------------------------------------------------------------------------------

void MemoryAccount::publish(Load& load, std::unique_ptr<Frame> loaded, std::enable_shared_from_this<PagerImpl>& owner,
                            Retired& retired) {
  if (frame_count_++ == 0) owner_ = owner.shared_from_this();
  const std::size_t tensor = load.tensor();
  TensorState& state = states_[tensor];
  loaded->charge = std::exchange(load.charge, 0);
  loaded->buffer = std::exchange(load.buffer, {});
  set_charged(tensor, false);
  load.has_result = true;
  state.references.add(load.waiters);
  state.bytes = loaded->bytes;
  state.frame = loaded.release();
  if (closed_) {
    // The callers that wait for this load still get it, but it does not become resident.
    state.presence = load.waiters > 0 ? Presence::kHeld : Presence::kAbsent;
    if (load.waiters > 0) ++held_count_;
    if (load.waiters == 0) retire(state, retired);
    return;
  }
  const bool unused = load.is_prefetch() && load.waiters == 0;
  if (!strict_) evict_for(state.bytes.size(), {.spare_protected = unused}, retired);
  states_.insert(tensor, unused);
  if (over_budget_bytes() > 0) statistics_.count_over_budget();
}

void MemoryAccount::cancel(Load& load, Retired& retired) {
  states_[load.tensor()].presence = Presence::kAbsent;
  set_charged(load.tensor(), false);
  give_back(std::exchange(load.charge, 0), std::exchange(load.buffer, {}), retired);
}

void MemoryAccount::forget(const Load& load) {
  states_[load.tensor()].presence = Presence::kAbsent;
  set_charged(load.tensor(), false);
  live_bytes_ -= load.charge;
}

// ---- eviction -------------------------------------------------------------------------------------------------------

bool MemoryAccount::evict_resident(std::size_t tensor, bool only_unheld, Retired& retired) {
  TensorState& state = states_[tensor];
  const bool unused = state.prefetched;
  if (!states_.remove(tensor, only_unheld)) return false;
  if (policy_ != nullptr) nearest_evicted_ = std::min(nearest_evicted_, policy_->distance(tensor));
  statistics_.count(state, [&](PagerStats& stats) {
    ++stats.evictions;
    stats.bytes_evicted += state.bytes.size();
    if (unused) ++stats.prefetch_wasted;
  });
  if (state.presence == Presence::kHeld) {
    ++held_count_;
  } else {
    retire(state, retired);
  }
  return true;
}

void MemoryAccount::pin(std::size_t tensor) {
  if (states_[tensor].pins == 0) pinned_bytes_ += catalog_.charge(tensor);
  states_.pin(tensor);
  room_changed_ = true;
}

void MemoryAccount::unpin(std::size_t tensor) {
  if (states_[tensor].pins == 0) {
    throw Error(ErrorCode::kInvalidArgument, "cannot be unpinned, because it is not pinned")
        .in_tensor(catalog_.table().name(tensor));
  }
  states_.unpin(tensor);
  if (states_[tensor].pins == 0) pinned_bytes_ -= catalog_.charge(tensor);
  room_changed_ = true;
  notify_waiters();
}

bool MemoryAccount::evict(std::size_t tensor, Retired& retired) {
  TensorState& state = states_[tensor];
  if (state.presence == Presence::kQueued) state.presence = Presence::kAbsent;
  if (state.presence != Presence::kResident || state.pins > 0) return false;
  evict_resident(tensor, false, retired);
  notify_waiters();
  return true;
}

std::size_t MemoryAccount::clear(Retired& retired) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) count += evict(i, retired) ? 1 : 0;
  shrink_pool(0, retired);
  if (spare_ != nullptr) retired.add_frame(std::move(spare_));
  notify_waiters();
  return count;
}

void MemoryAccount::set_budget(std::uint64_t bytes, Retired& retired) {
  budget_ = bytes;
  tell_room();
  if (!strict_) return evict_for(0, {}, retired);
  while (live_bytes_ > budget_ && free_some({.only_unheld = true}, retired)) {
  }
  notify_waiters();
}

// ---- the policy -----------------------------------------------------------------------------------------------------

void MemoryAccount::tell_room() {
  if (policy_ == nullptr) return;
  const std::uint64_t window = std::max(least_window_, std::min(budget_ / 4, kUsualWindow));
  const std::uint64_t room = budget_ - std::min(budget_, window);
  std::vector<bool> pinned(states_.size());
  for (std::size_t i = 0; i < pinned.size(); ++i) pinned[i] = states_[i].pins > 0;
  policy_->set_room(room - std::min(room, pinned_bytes_), std::move(pinned));
  states_.set_kept(policy_->kept());
  room_changed_ = false;
}

Policy::Step MemoryAccount::note_acquire(std::size_t tensor) {
  if (room_changed_) tell_room();
  const Policy::Step step = policy_->acquired(tensor);
  if (step == Policy::Step::kReplanned) states_.set_kept(policy_->kept());
  return step;
}

void MemoryAccount::give_up_prefetch(std::size_t tensor) {
  TensorState& state = states_[tensor];
  if (state.presence == Presence::kQueued) state.presence = Presence::kAbsent;
  if (!state.prefetched) return;
  states_.clear_prefetched(tensor);
  statistics_.count(state, [](PagerStats& stats) { ++stats.prefetch_wasted; });
}

// ---- the end --------------------------------------------------------------------------------------------------------

void MemoryAccount::close() {
  closed_ = true;
  notify_waiters();
}

void MemoryAccount::check_open() const {
  if (closed_) throw Error(ErrorCode::kInvalidArgument, "the pager is closed");
}

void MemoryAccount::evict_all(Retired& retired) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].presence == Presence::kResident) evict_resident(i, false, retired);
  }
  if (spare_ != nullptr) retired.add_frame(std::move(spare_));
  shrink_pool(0, retired);
}

void MemoryAccount::abandon_waiters() {
  // The destructor of a condition variable with waiting threads could wait for ever.
  (void)room_.release();
  room_ = std::make_unique<std::condition_variable>();
}

}  // namespace weightstore::pager
