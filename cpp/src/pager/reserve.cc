// The account: who may take memory, and who has to go for it.

#include <algorithm>
#include <utility>

#include "pager/core.h"

namespace weightstore::pager {

void Core::reserve(Lock& lock, Load& load, Patience& patience, Garbage& garbage) {
  const std::size_t i = load.slot();
  const bool view = viewable_[table().source_of(i)];
  const std::uint64_t charge = charge_of(i);
  if (!strict_) {
    if (!view && take_buffer(load, charge)) return;
    load.charge = charge;
    live_bytes_ += charge;
    note_live();
    return;
  }
  const SlotTable::Wish wish{.unheld = true, .no_prefetched = load.is_prefetch()};
  if (make_room(load, charge, !view, wish, garbage)) return;
  if (load.is_prefetch()) throw BudgetExceeded(charge, budget_, live_bytes_, holders());

  struct Waiting {
    explicit Waiting(std::atomic<std::uint32_t>& n) : number(n) { ++number; }
    ~Waiting() { --number; }
    std::atomic<std::uint32_t>& number;
  } const waiting(room_waiters_);
  while (!make_room(load, charge, !view, wish, garbage)) {
    check_open();
    if (charge > budget_ || !may_get_room() || patience.is_over()) {
      throw BudgetExceeded(charge, budget_, live_bytes_, holders());
    }
    if (patience.is_time_to_look()) {
      lock.unlock();
      patience.look(0, table().nbytes(i), table().name(i));
      lock.lock();
    } else {
      patience.sleep(*room_, lock, true);
    }
  }
}

bool Core::take_buffer(Load& load, std::uint64_t charge) {
  auto buffer = pool_.take(charge);
  if (!buffer) return false;
  load.buffer = std::move(*buffer);
  load.charge = charge;
  return true;
}

bool Core::make_room(Load& load, std::uint64_t charge, bool buffered, SlotTable::Wish wish, Garbage& garbage) {
  if (charge > budget_) return false;
  if (buffered && take_buffer(load, charge)) return true;
  // All that is needed goes, or nothing.
  const std::uint64_t most = budget_ - charge;
  const std::uint64_t excess = live_bytes_ - std::min(live_bytes_, most);
  if (excess > pool_.free_bytes() && !slots_.can_free(excess - pool_.free_bytes(), wish)) return false;
  while (live_bytes_ > most) {
    if (const std::uint64_t dropped = pool_.drop_one(garbage)) {
      live_bytes_ -= dropped;
      continue;
    }
    const auto victim = slots_.victim(wish);
    if (!victim) return false;
    evict_slot(*victim, garbage);
    if (buffered && take_buffer(load, charge)) return true;
  }
  load.charge = charge;
  live_bytes_ += charge;
  note_live();
  return true;
}

bool Core::may_get_room() const {
  // Other loads that wait for room themselves have none to give.
  for (const auto& [i, load] : loading_) {
    if (load->charge > 0) return true;
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.presence == Presence::kHeld) return true;
    if (slot.presence == Presence::kResident && slot.block->refs.load() > 1) return true;
  }
  return false;
}

std::vector<std::string> Core::holders() const {
  std::vector<std::size_t> slots;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const bool resident = slot.presence == Presence::kResident;
    if (slot.presence == Presence::kHeld || (resident && (slot.pins > 0 || slot.block->refs.load() > 1)) ||
        (slot.presence == Presence::kLoading && loading_.at(i)->charge > 0)) {
      slots.push_back(i);
    }
  }
  std::stable_sort(slots.begin(), slots.end(),
                   [&](std::size_t a, std::size_t b) { return table().nbytes(a) > table().nbytes(b); });
  std::vector<std::string> names;
  for (const std::size_t i : slots) names.emplace_back(table().name(i));
  return names;
}

std::uint64_t Core::over_budget_bytes() const {
  const std::uint64_t counted = strict_ ? live_bytes_ : slots_.resident_bytes();
  return counted - std::min(counted, budget_);
}

void Core::evict_for(std::uint64_t bytes, SlotTable::Wish wish, Garbage& garbage) {
  while (bytes > budget_ || slots_.resident_bytes() > budget_ - bytes) {
    const auto victim = slots_.victim(wish);
    if (!victim) return;
    evict_slot(*victim, garbage);
  }
}

void Core::evict_slot(std::size_t i, Garbage& garbage) {
  const bool unused = slots_[i].prefetched;
  Block* block = slots_.remove(i);
  for (PagerStats* stats : {&totals_, &per_slot_[i]}) {
    ++stats->evictions;
    stats->bytes_evicted += block->bytes.size();
    if (unused) ++stats->prefetch_wasted;
  }
  if (block->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) return bury(block, garbage);
  slots_[i].presence = Presence::kHeld;
  slots_[i].block = block;
}

void Core::bury(Block* block, Garbage& garbage) {
  garbage.push_back(std::shared_ptr<const Block>(block));
  if (block->buffer.owner != nullptr && block->charge >= BufferPool::kPooled && !closed_) {
    pool_.put(std::exchange(block->buffer, {}));
    if (!strict_) trim(pool_limit_, garbage);
  } else {
    live_bytes_ -= block->charge;
  }
}

void Core::trim(std::uint64_t most, Garbage& garbage) {
  while (pool_.free_bytes() > most) live_bytes_ -= pool_.drop_one(garbage);
}

void Core::drop(Block* block) noexcept {
  if (!block->core->strict_) {
    if (block->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) block->core->drop_last(block);
    return;
  }
  // Somebody may wait for this; and once the reference is gone, so may be the block.
  const std::shared_ptr<Core> core = block->core;
  if (block->refs.fetch_sub(1) == 1) {
    core->drop_last(block);
  } else if (core->room_waiters_.load() > 0) {
    const std::lock_guard lock(core->mutex_);
    core->room_->notify_all();
  }
}

void Core::drop_last(Block* block) noexcept {
  const std::shared_ptr<Core> self = block->core;
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  forget(block, garbage);
}

void Core::unreference(Block* block, Garbage& garbage) {
  if (block->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) return forget(block, garbage);
  if (strict_) room_->notify_all();
}

void Core::forget(Block* block, Garbage& garbage) {
  Slot& slot = slots_[block->slot];
  if (slot.block == block) {
    slot.block = nullptr;
    slot.presence = Presence::kAbsent;
  }
  bury(block, garbage);
  if (strict_) room_->notify_all();
}

void Core::pin(std::size_t i) {
  const std::lock_guard lock(mutex_);
  slots_.pin(i);
}

void Core::unpin(std::size_t i) {
  const std::lock_guard lock(mutex_);
  if (slots_[i].pins == 0) {
    throw Error(ErrorCode::kInvalidArgument, "is not pinned, and cannot be unpinned").in_tensor(table().name(i));
  }
  slots_.unpin(i);
  if (strict_) room_->notify_all();
}

bool Core::evict(std::size_t i) {
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  if (slots_[i].presence == Presence::kQueued) slots_[i].presence = Presence::kAbsent;
  if (slots_[i].presence != Presence::kResident || slots_[i].pins > 0) return false;
  evict_slot(i, garbage);
  if (strict_) room_->notify_all();
  return true;
}

std::size_t Core::clear() {
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].presence == Presence::kQueued) slots_[i].presence = Presence::kAbsent;
    if (slots_[i].presence != Presence::kResident || slots_[i].pins > 0) continue;
    evict_slot(i, garbage);
    ++count;
  }
  trim(0, garbage);
  if (strict_) room_->notify_all();
  return count;
}

void Core::set_budget(std::uint64_t bytes) {
  Garbage garbage;
  const std::lock_guard lock(mutex_);
  budget_ = bytes;
  if (!strict_) return evict_for(0, {}, garbage);
  while (live_bytes_ > budget_) {
    if (const std::uint64_t dropped = pool_.drop_one(garbage)) {
      live_bytes_ -= dropped;
    } else if (const auto victim = slots_.victim({.unheld = true})) {
      evict_slot(*victim, garbage);
    } else {
      break;
    }
  }
  room_->notify_all();
}

PagerStats Core::stats() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

PagerStats Core::stats(std::size_t i) const {
  const std::lock_guard lock(mutex_);
  const auto found = per_slot_.find(i);
  PagerStats result = found == per_slot_.end() ? PagerStats{} : found->second;
  result.hits = slots_[i].hits;
  return result;
}

void Core::reset_stats() {
  const std::lock_guard lock(mutex_);
  totals_ = {};
  per_slot_.clear();
  for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].hits = 0;
  first_slot_ = slots_.size();
  note_live();
}

}  // namespace weightstore::pager
