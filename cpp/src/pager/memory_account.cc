#include "pager/memory_account.h"

#include <algorithm>
#include <utility>

namespace weightstore::pager {

namespace {

// The window of a policy is a quarter of the budget, but not more than this unless large tensors need it.
constexpr std::uint64_t kUsualWindow = std::uint64_t{64} << 20;

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

Frame* MemoryAccount::restore_held(std::size_t tensor, Retired& retired) {
  TensorState& state = states_[tensor];
  Frame* frame = state.frame;
  if (!frame->try_reference()) {
    // The last holder waits for the mutex. It will find that the table no longer knows its frame.
    forget_held(state);
    return nullptr;
  }
  forget_held(state);
  frame->refs.fetch_add(1, std::memory_order_relaxed);  // the table's own reference
  if (!strict_) evict_for(frame->bytes.size(), {}, retired);
  states_.insert(tensor, frame, false);
  statistics_.count(tensor, [](PagerStats& stats) { ++stats.resurrected; });
  return frame;
}

void MemoryAccount::release(Frame* frame, Retired& retired) {
  if (frame->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) return remove(frame, retired);
  notify_waiters();
}

void MemoryAccount::remove(Frame* frame, Retired& retired) {
  TensorState& state = states_[frame->tensor];
  if (state.frame == frame) forget_held(state);
  retire(frame, retired);
  notify_waiters();
}

void MemoryAccount::forget_held(TensorState& state) {
  state.frame = nullptr;
  state.presence = Presence::kAbsent;
  --held_count_;
}

void MemoryAccount::retire(Frame* frame, Retired& retired) {
  retired.push_back(std::shared_ptr<const Frame>(frame));
  give_back(frame->charge, std::exchange(frame->buffer, {}), retired);
}

void MemoryAccount::give_back(std::uint64_t charge, SharedMutableBytes buffer, Retired& retired) {
  if (buffer.owner != nullptr && charge >= BufferPool::kPooled && !closed_) {
    pool_.put(std::move(buffer));
    if (!strict_) shrink_pool(pool_limit_, retired);
    return;
  }
  live_bytes_ -= charge;
  if (buffer.owner != nullptr) retired.push_back(std::move(buffer.owner));
}

void MemoryAccount::shrink_pool(std::uint64_t most, Retired& retired) {
  while (pool_.free_bytes() > most) live_bytes_ -= pool_.drop_one(retired);
}

// ---- loads ----------------------------------------------------------------------------------------------------------

void MemoryAccount::reserve(Lock& lock, Load& load, Deadline& deadline, Retired& retired) {
  const std::size_t tensor = load.tensor();
  if (!strict_) {
    const std::uint64_t charge = catalog_.charge(tensor);
    if (catalog_.is_view(tensor) || !take_free_buffer(load, charge)) charge_new(load, charge);
    return;
  }
  if (load.is_prefetch() && is_expected(tensor) ? try_reserve_ahead(load, retired) : try_reserve(load, retired)) return;
  if (load.is_prefetch()) throw no_room_for(tensor);

  struct Waiting {
    explicit Waiting(std::atomic<std::uint32_t>& n) : number(n) { ++number; }
    ~Waiting() { --number; }
    std::atomic<std::uint32_t>& number;
  } const waiting(waiters_);
  // Try once more before sleeping: a thread that released a tensor before it saw this waiter has notified nobody.
  while (!try_reserve(load, retired)) {
    check_open();
    if (catalog_.charge(tensor) > budget_ || !may_get_room() || deadline.has_passed()) throw no_room_for(tensor);
    if (deadline.is_report_due()) {
      lock.unlock();
      deadline.report(0, catalog_.table().nbytes(tensor), catalog_.table().name(tensor));
      lock.lock();
    } else {
      deadline.sleep(*room_, lock, true);
    }
  }
}

bool MemoryAccount::try_reserve(Load& load, Retired& retired) {
  const std::uint64_t charge = catalog_.charge(load.tensor());
  if (charge > budget_) return false;
  const bool needs_buffer = !catalog_.is_view(load.tensor());
  if (needs_buffer && take_free_buffer(load, charge)) return true;
  // Check first whether enough can go: an eviction that does not make room would be for nothing.
  const VictimRule rule{.only_unheld = true, .spare_protected = load.is_prefetch()};
  const std::uint64_t most = budget_ - charge;
  const std::uint64_t excess = live_bytes_ - std::min(live_bytes_, most);
  if (excess > pool_.free_bytes() && !states_.can_free(excess - pool_.free_bytes(), rule)) return false;
  while (live_bytes_ > most) {
    if (!free_some(rule, retired)) return false;
    if (needs_buffer && take_free_buffer(load, charge)) return true;
  }
  charge_new(load, charge);
  return true;
}

bool MemoryAccount::try_reserve_ahead(Load& load, Retired& retired) {
  const std::size_t tensor = load.tensor();
  const std::uint64_t charge = catalog_.charge(tensor);
  const std::size_t distance = policy_->distance(tensor);
  const bool needs_buffer = !catalog_.is_view(tensor);
  if (charge > budget_) return false;
  for (;;) {
    if (needs_buffer && take_free_buffer(load, charge)) return true;
    if (live_bytes_ <= budget_ - charge) {
      charge_new(load, charge);
      return true;
    }
    // New memory costs more than a buffer that fits: a free buffer of another size goes only when no tensor with a
    // buffer of this size can go.
    const auto victim = states_.stream_victim(*policy_, distance, charge);
    const bool fits = victim && states_[*victim].frame->charge == charge;
    const std::uint64_t dropped = fits ? 0 : pool_.drop_one(retired);
    live_bytes_ -= dropped;
    if (dropped > 0) continue;
    if (!victim) return false;
    evict_resident(*victim, retired);
  }
}

bool MemoryAccount::can_read_ahead(std::size_t tensor, std::size_t distance, std::uint64_t queued) const {
  const std::uint64_t needed = catalog_.charge(tensor) + queued;
  if (needed > budget_) return false;
  const std::uint64_t used = live_bytes_ - std::min(live_bytes_, pool_.free_bytes());
  if (used <= budget_ - needed) return true;
  return states_.can_stream(used - (budget_ - needed), *policy_, distance);
}

bool MemoryAccount::take_free_buffer(Load& load, std::uint64_t charge) {
  auto buffer = pool_.take(charge);
  if (!buffer) return false;
  load.buffer = std::move(*buffer);
  load.charge = charge;
  set_charged(load.tensor(), charge > 0);
  return true;
}

void MemoryAccount::charge_new(Load& load, std::uint64_t charge) {
  load.charge = charge;
  set_charged(load.tensor(), charge > 0);
  live_bytes_ += charge;
  statistics_.note_live_bytes(live_bytes_);
}

void MemoryAccount::set_charged(std::size_t tensor, bool charged) {
  TensorState& state = states_[tensor];
  if (state.charged == charged) return;
  state.charged = charged;
  charged ? ++charged_count_ : --charged_count_;
}

bool MemoryAccount::free_some(VictimRule rule, Retired& retired) {
  if (const std::uint64_t dropped = pool_.drop_one(retired)) {
    live_bytes_ -= dropped;
    return true;
  }
  const auto chosen = victim(rule);
  if (chosen) evict_resident(*chosen, retired);
  return chosen.has_value();
}

std::optional<std::size_t> MemoryAccount::victim(VictimRule rule) {
  if (policy_ != nullptr && policy_->horizon() > 0) {
    // The least recently used tensor of a cycle is the next one to be used.
    if (const auto streamed = states_.stream_victim(*policy_, 0, 0)) return streamed;
  }
  return states_.victim(rule);
}

bool MemoryAccount::may_get_room() const {
  // The search for victims has parked all candidates that callers hold. A load that waits for room itself has no memory
  // that it could give back.
  return held_count_ > 0 || charged_count_ > 0 || states_.parked_count() > 0;
}

std::vector<std::string> MemoryAccount::holders() const {
  const TensorTable& table = catalog_.table();
  std::vector<std::size_t> tensors;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const TensorState& state = states_[i];
    const bool resident = state.presence == Presence::kResident;
    const bool in_use = resident && (state.pins > 0 || state.frame->refs.load() > 1);
    if (state.presence == Presence::kHeld || in_use || state.charged) tensors.push_back(i);
  }
  std::stable_sort(tensors.begin(), tensors.end(),
                   [&](std::size_t a, std::size_t b) { return table.nbytes(a) > table.nbytes(b); });
  std::vector<std::string> names;
  for (const std::size_t tensor : tensors) names.emplace_back(table.name(tensor));
  return names;
}

BudgetExceeded MemoryAccount::no_room_for(std::size_t tensor) const {
  return BudgetExceeded(catalog_.charge(tensor), budget_, live_bytes_, holders());
}

void MemoryAccount::publish(Load& load, Frame* frame, Retired& retired) {
  const std::size_t tensor = load.tensor();
  TensorState& state = states_[tensor];
  frame->charge = std::exchange(load.charge, 0);
  frame->buffer = std::exchange(load.buffer, {});
  frame->refs.store(load.waiters + (closed_ ? 0 : 1), std::memory_order_relaxed);
  set_charged(tensor, false);
  load.result = frame;
  if (closed_) {
    // The callers that wait for this load still get it. The table takes no reference.
    state.presence = load.waiters > 0 ? Presence::kHeld : Presence::kAbsent;
    state.frame = load.waiters > 0 ? frame : nullptr;
    if (load.waiters > 0) ++held_count_;
    if (load.waiters == 0) retire(frame, retired);
    return;
  }
  const bool unused = load.is_prefetch() && load.waiters == 0;
  if (!strict_) evict_for(frame->bytes.size(), {.spare_protected = unused}, retired);
  states_.insert(tensor, frame, unused);
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

bool MemoryAccount::has_room_to_prefetch(std::size_t tensor, std::uint64_t loading_bytes) const {
  const std::uint64_t taken = states_.protected_bytes() + loading_bytes;
  return taken <= budget_ && catalog_.table().nbytes(tensor) <= budget_ - taken;
}

// ---- eviction -------------------------------------------------------------------------------------------------------

void MemoryAccount::evict_for(std::uint64_t bytes, VictimRule rule, Retired& retired) {
  while (bytes > budget_ || states_.resident_bytes() > budget_ - bytes) {
    const auto chosen = victim(rule);
    if (!chosen) return;
    evict_resident(*chosen, retired);
  }
}

void MemoryAccount::evict_resident(std::size_t tensor, Retired& retired) {
  const bool unused = states_[tensor].prefetched;
  Frame* frame = states_.remove(tensor);
  if (policy_ != nullptr) nearest_evicted_ = std::min(nearest_evicted_, policy_->distance(tensor));
  statistics_.count(tensor, [&](PagerStats& stats) {
    ++stats.evictions;
    stats.bytes_evicted += frame->bytes.size();
    if (unused) ++stats.prefetch_wasted;
  });
  if (frame->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) return retire(frame, retired);
  states_[tensor].presence = Presence::kHeld;
  states_[tensor].frame = frame;
  ++held_count_;
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
  evict_resident(tensor, retired);
  notify_waiters();
  return true;
}

std::size_t MemoryAccount::clear(Retired& retired) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) count += evict(i, retired) ? 1 : 0;
  shrink_pool(0, retired);
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
  statistics_.count(tensor, [](PagerStats& stats) { ++stats.prefetch_wasted; });
}

void MemoryAccount::set_starving(bool starving) {
  if (std::exchange(starving_, starving) == starving) return;
  if (starving) {
    ++waiters_;
  } else {
    --waiters_;
  }
}

void MemoryAccount::note_release(std::size_t tensor) {
  states_.unpark(tensor);
  notify_waiters();
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
    if (states_[i].presence == Presence::kResident) evict_resident(i, retired);
  }
  shrink_pool(0, retired);
}

void MemoryAccount::abandon_waiters() {
  waiters_ = starving_ ? 1 : 0;
  // The destructor of a condition variable with waiting threads could wait for ever.
  (void)room_.release();
  room_ = std::make_unique<std::condition_variable>();
}

}  // namespace weightstore::pager
