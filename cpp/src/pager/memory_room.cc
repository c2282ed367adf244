// How the memory account finds room for a tensor.

#include <algorithm>
#include <utility>

#include "pager/memory_account.h"

namespace weightstore::pager {

void MemoryAccount::reserve(Lock& lock, Load& load, Deadline& deadline, Retired& retired) {
  const std::size_t tensor = load.tensor();
  if (!strict_) {
    const std::uint64_t charge = catalog_.charge(tensor);
    if (catalog_.is_view(tensor) || !take_free_buffer(load, charge)) charge_new(load, charge);
    return;
  }
  if (load.is_prefetch() && is_expected(tensor) ? try_reserve_ahead(load, retired) : try_reserve(load, retired)) return;
  if (load.is_prefetch()) throw no_room_for(tensor);

  // A failed attempt has watched all candidates that callers hold, so that their release notifies this thread.
  do {
    check_open();
    if (catalog_.charge(tensor) > budget_ || !may_get_room() || deadline.has_passed()) throw no_room_for(tensor);
    if (deadline.is_report_due()) {
      lock.unlock();
      deadline.report(0, catalog_.table().nbytes(tensor), catalog_.table().name(tensor));
      lock.lock();
    } else {
      deadline.sleep(*room_, lock, true);
    }
  } while (!try_reserve(load, retired));
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
    evict_resident(*victim, true, retired);
  }
}

bool MemoryAccount::can_read_ahead(std::size_t tensor, std::size_t distance, std::uint64_t queued) {
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
  if (spare_ != nullptr && spare_->buffer.bytes.size() == charge && !catalog_.is_view(load.tensor())) {
    load.buffer = std::exchange(spare_->buffer, {});
    load.frame = std::move(spare_);
  }
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
  for (;;) {
    const auto chosen = victim(rule);
    if (!chosen) return false;
    if (evict_resident(*chosen, rule.only_unheld, retired)) return true;  // otherwise a caller has just acquired it
  }
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
    const bool in_use = resident && (state.pins > 0 || state.references.count() > 0);
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

bool MemoryAccount::has_room_to_prefetch(std::size_t tensor, std::uint64_t loading_bytes) const {
  const std::uint64_t taken = states_.protected_bytes() + loading_bytes;
  return taken <= budget_ && catalog_.table().nbytes(tensor) <= budget_ - taken;
}

void MemoryAccount::evict_for(std::uint64_t bytes, VictimRule rule, Retired& retired) {
  while (bytes > budget_ || states_.resident_bytes() > budget_ - bytes) {
    const auto chosen = victim(rule);
    if (!chosen) return;
    evict_resident(*chosen, false, retired);
  }
}

}  // namespace weightstore::pager
