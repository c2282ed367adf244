// Loads that nobody waits for yet, and many at once.

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "pager/core.h"

namespace weightstore::pager {

void Core::prefetch(std::span<const std::size_t> wanted) {
  std::vector<Block*> held;
  Garbage garbage;
  {
    Lock lock(mutex_);
    check_open();
    start_readers(lock);
    for (const std::size_t i : wanted) {
      Slot& slot = slots_[i];
      if (slot.presence == Presence::kResident) slots_.use(slot);
      if (slot.presence == Presence::kHeld) {
        if (Block* block = resurrect(i, garbage)) held.push_back(block);
      }
      if (slot.presence != Presence::kAbsent) continue;
      slot.presence = Presence::kQueued;
      prefetch_queue_.push_back(i);
      ++totals_.prefetch_issued;
      ++per_slot_[i].prefetch_issued;
    }
    work_->notify_all();
  }
  for (Block* block : held) drop(block);
}

void Core::finish_prefetch(const Progress& progress) {
  Lock lock(mutex_);
  if (process_ != ::getpid()) adopt_after_fork();
  Patience patience(std::chrono::milliseconds::max(), progress);
  while (!prefetch_queue_.empty() || prefetching_ > 0) {
    if (patience.is_time_to_look()) {
      const std::size_t left = prefetch_queue_.size() + prefetching_;
      lock.unlock();
      patience.look(0, left, {});
      lock.lock();
    } else {
      patience.sleep(*idle_, lock, false);
    }
  }
}

bool Core::has_room_to_prefetch(std::size_t i) const {
  std::uint64_t taken = slots_.kept_bytes();
  for (const auto& [slot, load] : loading_) taken += table().nbytes(slot);
  const std::uint64_t size = table().nbytes(i);
  return taken <= budget_ && size <= budget_ - taken;
}

void Core::run_queued(Lock& lock, std::size_t i) {
  if (slots_[i].presence != Presence::kQueued) return;
  if (!has_room_to_prefetch(i)) {
    slots_[i].presence = Presence::kAbsent;
    ++totals_.prefetch_skipped;
    ++per_slot_[i].prefetch_skipped;
    return;
  }
  ++prefetching_;
  LoadPtr load = begin(i, true);
  lead_alone(lock, load);
  --prefetching_;
  lock.unlock();
  load.reset();
  lock.lock();
}

void Core::acquire_many(std::span<const std::size_t> wanted, Wait wait, const Progress& progress,
                        const std::function<void(std::size_t, Block*)>& give) {
  // A strict budget may make a load wait for what this very call has got: one at a time, then.
  if (strict_) {
    for (std::size_t k = 0; k < wanted.size(); ++k) give(k, acquire(wanted[k], wait, progress));
    return;
  }
  std::vector<LoadPtr> pending(wanted.size());
  std::vector<LoadPtr> fresh;
  std::vector<Block*> blocks(wanted.size());
  Failure failure;
  Garbage garbage;
  Lock lock(mutex_);
  check_open();
  if (process_ != ::getpid()) adopt_after_fork();
  for (const std::size_t i : wanted) note_pass(i);
  // First what is resident, then what comes back, then what is read: so that none pushes out those before it.
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    if (slots_[wanted[k]].presence == Presence::kResident) blocks[k] = hit(wanted[k]);
  }
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    if (blocks[k] == nullptr) blocks[k] = present(wanted[k], garbage);
  }
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    if (blocks[k] != nullptr) continue;
    pending[k] = enlist(wanted[k]);
    if (!pending[k]->led && pending[k]->waiters == 1) fresh.push_back(pending[k]);
  }
  if (fresh.size() > 1) share(lock, fresh);

  Patience patience(std::chrono::milliseconds(0), progress);
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    while (blocks[k] == nullptr) {
      if (patience.gave_up()) {
        leave(pending[k], garbage);
        break;
      }
      if (Failure failed = await(lock, pending[k], patience, garbage)) {
        if (!failure) failure = std::move(failed);
        break;
      }
      blocks[k] = pending[k]->result;
      if (blocks[k] != nullptr) break;
      // Another caller led it, and gave up.
      blocks[k] = present(wanted[k], garbage);
      if (blocks[k] == nullptr) pending[k] = enlist(wanted[k]);
    }
  }
  // Whatever order they came in, they were asked for in this one.
  for (const std::size_t i : wanted) {
    if (slots_[i].presence == Presence::kResident) slots_.use(slots_[i]);
  }
  lock.unlock();
  if (failure) {
    for (Block* block : blocks) {
      if (block != nullptr) drop(block);
    }
    failure();
  }
  for (std::size_t k = 0; k < wanted.size(); ++k) give(k, blocks[k]);
}

}  // namespace weightstore::pager
