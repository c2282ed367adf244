#include "pager/slot_table.h"

#include <algorithm>

namespace weightstore::pager {

void SlotTable::insert(std::size_t i, Block* block, bool prefetched) {
  Slot& slot = slots_[i];
  slot.block = block;
  slot.presence = Presence::kResident;
  slot.prefetched = prefetched;
  use(slot);
  const std::uint64_t size = tensors_.nbytes(i);
  resident_bytes_ += size;
  ++resident_count_;
  if (kept(slot)) kept_bytes_ += size;
}

Block* SlotTable::remove(std::size_t i) {
  Slot& slot = slots_[i];
  const std::uint64_t size = tensors_.nbytes(i);
  resident_bytes_ -= size;
  --resident_count_;
  if (kept(slot)) kept_bytes_ -= size;
  slot.prefetched = false;
  slot.presence = Presence::kAbsent;
  Block* block = slot.block;
  slot.block = nullptr;
  return block;
}

bool SlotTable::clear_prefetched(std::size_t i) {
  Slot& slot = slots_[i];
  if (!slot.prefetched) return false;
  slot.prefetched = false;
  if (!kept(slot)) kept_bytes_ -= tensors_.nbytes(i);
  return true;
}

void SlotTable::pin(std::size_t i) {
  Slot& slot = slots_[i];
  const bool was_kept = kept(slot);
  ++slot.pins;
  if (!was_kept && slot.presence == Presence::kResident) kept_bytes_ += tensors_.nbytes(i);
}

void SlotTable::unpin(std::size_t i) {
  Slot& slot = slots_[i];
  --slot.pins;
  if (slot.presence != Presence::kResident || kept(slot)) return;
  kept_bytes_ -= tensors_.nbytes(i);
  oldest_.clear();  // it may be older than all of them
}

bool SlotTable::allows(const Slot& slot, Wish wish) const {
  if (wish.no_prefetched && slot.prefetched) return false;
  // Not less than sequentially consistent: who drops a reference and sees nobody waiting relies on those who come to
  // wait to see that it is gone.
  return !wish.unheld || slot.block->refs.load() == 1;
}

bool SlotTable::can_free(std::uint64_t bytes, Wish wish) const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < slots_.size() && sum < bytes; ++i) {
    const Slot& slot = slots_[i];
    if (slot.presence != Presence::kResident || slot.pins > 0 || !allows(slot, wish)) continue;
    sum += slot.block->charge;
  }
  return sum >= bytes;
}

std::optional<std::size_t> SlotTable::victim(Wish wish) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    // From the oldest on. What does not fit this wish may fit the next, and stays.
    for (std::size_t k = oldest_.size(); k-- > 0;) {
      const Slot& slot = slots_[oldest_[k].slot];
      const bool stale = slot.tick != oldest_[k].tick || slot.presence != Presence::kResident || slot.pins > 0;
      if (stale && k + 1 == oldest_.size()) {
        oldest_.pop_back();
        continue;
      }
      if (!stale && allows(slot, wish)) return oldest_[k].slot;
    }
    if (attempt == 0) find_oldest();
  }
  if (!wish.unheld && !wish.no_prefetched) return std::nullopt;
  // All of the oldest are held or prefetched: look at everything.
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.presence != Presence::kResident || slot.pins > 0 || !allows(slot, wish)) continue;
    if (!best || slot.tick < slots_[*best].tick) best = i;
  }
  return best;
}

void SlotTable::find_oldest() {
  oldest_.clear();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].presence != Presence::kResident || slots_[i].pins > 0) continue;
    oldest_.push_back({slots_[i].tick, static_cast<std::uint32_t>(i)});
  }
  // An eighth at a time: looking for the next victim costs a few steps in the mean, however many slots there are.
  const std::size_t count = std::min(oldest_.size(), std::max<std::size_t>(64, slots_.size() / 8));
  const auto older = [](const Candidate& a, const Candidate& b) { return a.tick < b.tick; };
  std::partial_sort(oldest_.begin(), oldest_.begin() + static_cast<std::ptrdiff_t>(count), oldest_.end(), older);
  oldest_.resize(count);
  std::reverse(oldest_.begin(), oldest_.end());
}

}  // namespace weightstore::pager
