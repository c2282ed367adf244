#pragma once

// Which tensors are in memory, and which of them the pager evicts next.

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "pager/tensor_state.h"
#include "weightstore/tensor.h"

namespace weightstore::pager {

class Policy;

// Which resident tensors the pager may evict. It never evicts pinned ones.
struct VictimRule {
  bool only_unheld = false;      // only tensors to which no caller has a reference
  bool spare_protected = false;  // no tensor that the policy keeps, or that was prefetched and not used yet
};

// The state of every tensor, in least-recently-used order. A use only stores a tick. The candidates for eviction are in
// a priority queue, with the tick that each had when it was queued; a search for a victim brings the oldest entries up
// to date. So a miss costs the same however many tensors there are, are pinned or are held. The caller holds the
// pager's mutex, except for use() and constant things.
//
// Ticks: a use takes the next number without making sure that no other thread takes the same. So the order of the uses
// of one thread is exact, and uses of several threads between two loads may change places. They do not change places
// with uses before the last load, because insert() begins a new epoch of ticks.
//
// Invariants: resident_bytes() is the sum of the sizes of the kResident tensors; protected_bytes() is the same sum over
// those that are pinned, prefetched or kept. Only insert() and remove() change a presence to or from kResident. Every
// candidate has exactly one entry in the queue, with a key that is not larger than its own.
class TensorStates {
 public:
  // `table` outlives this object.
  explicit TensorStates(const TensorTable& table);

  TensorState& operator[](std::size_t tensor) { return states_[tensor]; }
  const TensorState& operator[](std::size_t tensor) const { return states_[tensor]; }
  std::size_t size() const { return states_.size(); }

  // Makes this the most recently used tensor.
  void use(TensorState& state) {
    const std::uint64_t now = tick_.load(std::memory_order_relaxed) + 1;
    tick_.store(now, std::memory_order_relaxed);
    state.tick.store(epoch_.load(std::memory_order_relaxed) + now, std::memory_order_relaxed);
  }
  // Makes a tensor with a frame resident and the most recently used one.
  void insert(std::size_t tensor, bool prefetched);
  // Makes a resident tensor held or absent; its frame then has no references, and the caller retires it. With
  // `only_unheld`, false and nothing happens when a caller has the tensor.
  bool remove(std::size_t tensor, bool only_unheld);
  // The tensor no longer counts as prefetched: a caller has acquired it, or nobody is going to.
  void clear_prefetched(std::size_t tensor);
  void pin(std::size_t tensor);
  void unpin(std::size_t tensor);
  // Says for every tensor whether the policy keeps it.
  void set_kept(const std::vector<bool>& kept);
  // After a caller has released a watched tensor: when nobody holds it any more, it is no longer watched, and a
  // candidate again if it was parked.
  void unpark(TensorState& state);

  std::uint64_t resident_bytes() const { return resident_bytes_; }
  std::size_t resident_count() const { return resident_count_; }
  // The bytes of resident tensors that a prefetch must not evict: those that are pinned or kept, or prefetched but
  // unused.
  std::uint64_t protected_bytes() const { return protected_bytes_; }
  std::size_t parked_count() const { return parked_count_; }

  // The least recently used tensor that the rule allows to evict; nullopt when there is none. Tensors that the policy
  // keeps come after all others.
  std::optional<std::size_t> victim(VictimRule rule);
  // Whether the frames of all tensors that the rule allows to evict have at least this much memory.
  bool can_free(std::uint64_t bytes, VictimRule rule);
  // A tensor that makes room for one which `policy` expects to be used after `distance` other acquires: neither
  // protected nor held, and needed later than that one. A tensor with a charge of exactly `charge` goes first, because
  // its buffer fits; then the one that is needed last. Looks only at a bounded number of candidates, and watches those
  // that are held.
  std::optional<std::size_t> stream_victim(const Policy& policy, std::size_t distance, std::uint64_t charge);
  // Whether the frames of such tensors have at least this much memory.
  bool can_stream(std::uint64_t bytes, const Policy& policy, std::size_t distance);

 private:
  static bool is_protected(const TensorState& state) { return state.pins > 0 || state.prefetched || state.kept; }
  static bool is_candidate(const TensorState& state) {
    return state.presence == Presence::kResident && state.pins == 0 && !state.parked;
  }

  struct Candidate {
    std::uint64_t key;
    std::uint32_t tensor;
  };
  static bool is_later(const Candidate& a, const Candidate& b) { return a.key > b.key; }
  static std::uint64_t key_of(const TensorState& state) {
    return state.tick.load(std::memory_order_relaxed) | (state.kept ? std::uint64_t{1} << 63 : 0);
  }
  // Calls `look` with the tensors that stream_victim() may choose, until it returns false.
  template <class Look>
  void look_at_streamed(const Policy& policy, std::size_t distance, Look look);
  void enqueue(std::size_t tensor);
  // Takes the first candidate that the rule allows off the queue. Tensors that the rule spares go to `spared`.
  std::optional<Candidate> take_first(VictimRule rule, std::vector<Candidate>& spared);
  Candidate pop();
  void push(Candidate candidate);
  // Whether a caller holds the tensor, which is then parked.
  bool park_if_held(TensorState& state);

  const TensorTable& table_;
  std::vector<TensorState> states_;
  std::atomic<std::uint64_t> tick_{0};
  std::atomic<std::uint64_t> epoch_{0};
  std::uint64_t resident_bytes_ = 0;
  std::uint64_t protected_bytes_ = 0;
  std::size_t resident_count_ = 0;
  std::size_t parked_count_ = 0;
  std::vector<Candidate> queue_;  // a heap, the smallest key first
};

}  // namespace weightstore::pager
