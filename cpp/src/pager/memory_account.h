#pragma once

// The pager's memory: which tensors use it, how much is left, and which tensors are evicted when it runs out.

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pager/buffer_pool.h"
#include "pager/catalog.h"
#include "pager/deadline.h"
#include "pager/eviction.h"
#include "pager/frame.h"
#include "pager/load.h"
#include "pager/policy/policy.h"
#include "pager/statistics.h"

namespace weightstore::pager {

// Keeps the states of the tensors, the budget, the pool of free buffers, and the callers that wait for room. All
// functions are called with the pager's mutex held, except strict() and policy().
//
// Invariant: live_bytes() is the sum of the charges of all frames, of the charges of all loads that have reserved
// memory, and of the capacities of the free buffers in the pool. reserve() adds a charge once; cancel() or the
// retirement of the frame takes it off once.
//
// With a best-effort budget, memory is taken first and tensors are evicted when the new one is published. With a strict
// budget, reserve() evicts first and waits until there is room.
class MemoryAccount {
 public:
  // `catalog` and `statistics` outlive this object.
  MemoryAccount(const Catalog& catalog, Statistics& statistics, const PagerOptions& options);

  bool strict() const { return strict_; }
  TensorStates& states() { return states_; }
  const TensorStates& states() const { return states_; }
  std::uint64_t budget() const { return budget_; }
  std::uint64_t live_bytes() const { return live_bytes_; }
  std::uint64_t over_budget_bytes() const;

  // ---- references ------------------------------------------------------------------------------------------------
  // Puts a held tensor back into the table, and takes a reference for the caller.
  void restore_held(TensorState& state, Retired& retired);
  // Drops a reference, and takes back the memory if it was the last one to a tensor that is not resident.
  void release(TensorState& state, Retired& retired);

  // ---- loads -----------------------------------------------------------------------------------------------------
  // Reserves the memory of a load, with a buffer of the pool when one fits. Strict: evicts tensors once that makes
  // enough room, and until then waits for callers to release theirs. Throws BudgetExceeded when the deadline passes or
  // there is nothing to wait for; a prefetch does not wait. Unlocks the mutex while it waits.
  void reserve(Lock& lock, Load& load, Deadline& deadline, Retired& retired);
  // Makes the tensor of a finished load resident, and evicts what no longer fits. Every waiter gets a reference. While
  // there are frames, `owner` stays alive.
  void publish(Load& load, std::unique_ptr<Frame> frame, std::enable_shared_from_this<PagerImpl>& owner,
               Retired& retired);
  // Undoes reserve(); the tensor is absent afterwards.
  void cancel(Load& load, Retired& retired);
  // After a fork: takes a load of the parent off the account, without touching its buffer.
  void forget(const Load& load);
  bool has_room_to_prefetch(std::size_t tensor, std::uint64_t loading_bytes) const;
  // Whether reserve() would succeed for a prefetch that the policy expects to be used after `distance` acquires, when
  // `queued` bytes are going to be taken before.
  bool can_read_ahead(std::size_t tensor, std::size_t distance, std::uint64_t queued);
  BudgetExceeded no_room_for(std::size_t tensor) const;

  // ---- what callers ask for --------------------------------------------------------------------------------------
  void pin(std::size_t tensor);
  void unpin(std::size_t tensor);
  bool evict(std::size_t tensor, Retired& retired);
  std::size_t clear(Retired& retired);
  void set_budget(std::uint64_t bytes, Retired& retired);

  // ---- the policy ------------------------------------------------------------------------------------------------
  // Null for the least recently used order.
  const Policy* policy() const { return policy_.get(); }
  // Whether there is a policy that expects this tensor.
  bool is_expected(std::size_t tensor) const {
    return policy_ != nullptr && policy_->distance(tensor) != Policy::kNever;
  }
  // Tells the policy what a caller acquires. Only when there is one.
  Policy::Step note_acquire(std::size_t tensor);
  // A tensor that was prefetched, or is about to be, is not expected any more. It loses its protection.
  void give_up_prefetch(std::size_t tensor);
  // The smallest Policy::distance() of the tensors that were evicted since the last call.
  std::size_t take_nearest_evicted() { return std::exchange(nearest_evicted_, Policy::kNever); }
  // ---- the end ---------------------------------------------------------------------------------------------------
  // From now on memory that comes back is freed, and callers that wait for room get an error.
  void close();
  bool is_closed() const { return closed_; }
  // Throws Error(kInvalidArgument) after close().
  void check_open() const;
  void evict_all(Retired& retired);
  // After a fork: forgets the waiting threads of the parent.
  void abandon_waiters();

  // Strict: wakes the callers that wait for room.
  void notify_waiters() {
    if (strict_) room_->notify_all();
  }

 private:
  // Evicts tensors until `bytes` more fit into a best-effort budget, or until the rule allows no more evictions.
  void evict_for(std::uint64_t bytes, VictimRule rule, Retired& retired);
  // False when `only_unheld` and a caller has the tensor.
  bool evict_resident(std::size_t tensor, bool only_unheld, Retired& retired);
  bool try_reserve(Load& load, Retired& retired);
  // The same for a tensor that the policy reads ahead, which must not evict anything that is needed earlier.
  bool try_reserve_ahead(Load& load, Retired& retired);
  // How much of the budget the policy may keep.
  void tell_room();
  bool take_free_buffer(Load& load, std::uint64_t charge);
  void charge_new(Load& load, std::uint64_t charge);
  void set_charged(std::size_t tensor, bool charged);
  // The tensor to evict for one that a caller waits for.
  std::optional<std::size_t> victim(VictimRule rule);
  // Retires a free buffer or, when there is none, evicts a tensor. False when the rule allows no eviction.
  bool free_some(VictimRule rule, Retired& retired);
  bool may_get_room() const;
  // The tensors that a strict budget cannot evict, the largest first.
  std::vector<std::string> holders() const;
  // Takes back the memory of a tensor that is neither resident nor held.
  void retire(TensorState& state, Retired& retired);
  void give_back(std::uint64_t charge, SharedMutableBytes buffer, Retired& retired);
  void shrink_pool(std::uint64_t most, Retired& retired);

  const bool strict_;
  bool closed_ = false;
  TensorStates states_;
  const Catalog& catalog_;
  Statistics& statistics_;
  std::uint64_t budget_;
  std::uint64_t live_bytes_ = 0;
  BufferPool pool_;
  // Best effort: how much memory the pool keeps. Twice the largest tensor: the buffer of a tensor that was just
  // evicted, and the one for the next load.
  const std::uint64_t pool_limit_;
  std::unique_ptr<std::condition_variable> room_;  // strict: memory was released
  std::size_t held_count_ = 0;                     // tensors that are kHeld
  std::size_t charged_count_ = 0;                  // tensors that are charged
  std::uint64_t pinned_bytes_ = 0;                 // the charges of the pinned tensors, resident or not
  std::size_t frame_count_ = 0;
  std::shared_ptr<const void> owner_;  // while there are frames
  // A frame with its buffer, of a small tensor that was evicted, for the next load of the same size: to allocate both
  // takes longer than to read so few bytes. live_bytes() counts it as little as what malloc keeps.
  std::unique_ptr<Frame> spare_;
  std::size_t nearest_evicted_ = Policy::kNever;
  bool room_changed_ = false;         // since the policy was told
  const std::uint64_t least_window_;  // of the policy
  std::unique_ptr<Policy> policy_;
};

}  // namespace weightstore::pager
