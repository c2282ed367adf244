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

void Core::finish_prefetch() {
  Lock lock(mutex_);
  if (process_ != ::getpid()) adopt_after_fork();
  idle_->wait(lock, [&] { return prefetch_queue_.empty() && prefetching_ == 0; });
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
  lead(lock, load, Clock::now());
  --prefetching_;
  lock.unlock();
  load.reset();
  lock.lock();
}

void Core::acquire_many(std::span<const std::size_t> wanted, Wait wait,
                        const std::function<void(std::size_t, Block*)>& give) {
  // A strict budget may make a load wait for what this very call has got: one at a time, then.
  if (strict_) {
    for (std::size_t k = 0; k < wanted.size(); ++k) give(k, acquire(wanted[k], wait));
    return;
  }
  std::vector<LoadPtr> pending(wanted.size());
  std::vector<LoadPtr> fresh;
  std::vector<Block*> blocks(wanted.size());
  std::function<void()> raise;
  Garbage garbage;
  Lock lock(mutex_);
  check_open();
  if (process_ != ::getpid()) adopt_after_fork();
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    // First those that need no reading, so that what is read does not push them out.
    const std::size_t i = wanted[k];
    if (slots_[i].presence == Presence::kResident) blocks[k] = hit(i);
    if (slots_[i].presence == Presence::kHeld) blocks[k] = resurrect(i, garbage);
  }
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const std::size_t i = wanted[k];
    if (blocks[k] != nullptr) continue;
    note_pass(i);
    if (slots_[i].presence == Presence::kLoading) {
      pending[k] = loading_.at(i);
      ++totals_.coalesced_waits;
      ++per_slot_[i].coalesced_waits;
    } else {
      pending[k] = begin(i, false);
      fresh.push_back(pending[k]);
    }
    ++pending[k]->waiters;
  }
  if (fresh.size() > 1) share(lock, fresh);

  const auto started = Clock::now();
  for (std::size_t k = 0; k < wanted.size(); ++k) {
    const LoadPtr& load = pending[k];
    if (load == nullptr) continue;
    if (!load->led) {
      lead(lock, load, started);
    } else if (load->has_chunks()) {
      lock.unlock();
      load->read();
      lock.lock();
    }
    load->ended.wait(lock, [&] { return load->done; });
    blocks[k] = load->result;
    if (!load->raise) continue;
    ++totals_.errors;
    ++per_slot_[wanted[k]].errors;
    if (!raise) raise = load->raise;
  }
  totals_.wait_ns += static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - started).count());
  // Whatever order they came in, they were asked for in this one.
  for (const std::size_t i : wanted) {
    if (slots_[i].presence == Presence::kResident) slots_.use(slots_[i]);
  }
  lock.unlock();
  if (raise) {
    for (Block* block : blocks) {
      if (block != nullptr) drop(block);
    }
    raise();
  }
  for (std::size_t k = 0; k < wanted.size(); ++k) give(k, blocks[k]);
}

}  // namespace weightstore::pager
