#pragma once

// Which tensors are in memory, and which of them the pager evicts next.

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "pager/frame.h"
#include "weightstore/tensor.h"

namespace weightstore::pager {

class Policy;

enum class Presence : std::uint8_t {
  kAbsent,
  kQueued,    // waits to be prefetched
  kLoading,   // some thread loads it, or is about to
  kResident,  // the table has a reference to its frame
  kHeld,      // evicted, but a caller has a reference; the table remembers the frame without a reference of its own
};

struct alignas(32) TensorState {
  Frame* frame = nullptr;
  std::uint64_t tick = 0;  // of the last use
  std::uint64_t hits = 0;
  std::uint32_t pins = 0;
  Presence presence = Presence::kAbsent;
  bool prefetched : 1 = false;  // resident, and nobody has acquired it since it was prefetched
  bool charged : 1 = false;     // loading, and live_bytes() counts its memory
  bool kept : 1 = false;        // the policy wants it to stay in memory
  bool queued : 1 = false;      // has an entry in the queue of candidates
  bool parked : 1 = false;      // a caller held it when a victim was searched; not a candidate until it is released
};
static_assert(sizeof(TensorState) == 32);

// Which resident tensors the pager may evict. It never evicts pinned ones.
struct VictimRule {
  bool only_unheld = false;      // only tensors to which no caller has a reference
  bool spare_protected = false;  // no tensor that the policy keeps, or that was prefetched and not used yet
};

// The state of every tensor, in least-recently-used order. A use only stores a tick. The candidates for eviction are in
// a priority queue, with the tick that each had when it was queued; a search for a victim brings the oldest entries up
// to date. So a miss costs the same however many tensors there are, are pinned or are held. The caller holds the
// pager's mutex.
//
// Invariants: resident_bytes() is the sum of the sizes of the kResident tensors; protected_bytes() is the same sum over
// those that are pinned, prefetched or kept. Only insert() and remove() change a presence to or from kResident. Every
// candidate has exactly one entry in the queue, with a key that is not larger than its own.
class TensorStates {
 public:
  // `table` outlives this object.
  explicit TensorStates(const TensorTable& table) : table_(table), states_(table.size()) {}

  TensorState& operator[](std::size_t tensor) { return states_[tensor]; }
  const TensorState& operator[](std::size_t tensor) const { return states_[tensor]; }
  std::size_t size() const { return states_.size(); }

  // Makes this the most recently used tensor.
  void use(TensorState& state) { state.tick = ++tick_; }
  // Makes a tensor resident and the most recently used one. The table takes over one reference to the frame.
  void insert(std::size_t tensor, Frame* frame, bool prefetched);
  // Makes a resident tensor absent. The caller takes over the table's reference to the frame.
  Frame* remove(std::size_t tensor);
  // The tensor no longer counts as prefetched: a caller has acquired it, or nobody is going to.
  void clear_prefetched(std::size_t tensor);
  void pin(std::size_t tensor);
  void unpin(std::size_t tensor);
  // Says for every tensor whether the policy keeps it.
  void set_kept(const std::vector<bool>& kept);
  // After a caller has released the tensor: makes a parked tensor that nobody holds a candidate again.
  void unpark(std::size_t tensor);

  std::uint64_t resident_bytes() const { return resident_bytes_; }
  std::size_t resident_count() const { return resident_count_; }
  // The bytes of resident tensors that a prefetch must not evict: those that are pinned or kept, or prefetched but
  // unused.
  std::uint64_t protected_bytes() const { return protected_bytes_; }
  // The number of parked tensors. Also called without the mutex, by a thread that has just dropped a reference.
  std::size_t parked_count() const { return parked_count_.load(); }

  // The least recently used tensor that the rule allows to evict; nullopt when there is none. Tensors that the policy
  // keeps come after all others.
  std::optional<std::size_t> victim(VictimRule rule);
  // Whether the frames of all tensors that the rule allows to evict have at least this much memory.
  bool can_free(std::uint64_t bytes, VictimRule rule);
  // A tensor that makes room for one which `policy` expects to be used after `distance` other acquires: neither
  // protected nor held, and needed later than that one. A tensor with a charge of exactly `charge` goes first, because
  // its buffer fits; then the one that is needed last. Looks only at a bounded number of candidates.
  std::optional<std::size_t> stream_victim(const Policy& policy, std::size_t distance, std::uint64_t charge) const;
  // Whether the frames of such tensors have at least this much memory.
  bool can_stream(std::uint64_t bytes, const Policy& policy, std::size_t distance) const;

 private:
  static bool is_protected(const TensorState& state) { return state.pins > 0 || state.prefetched || state.kept; }
  static bool is_candidate(const TensorState& state) {
    return state.presence == Presence::kResident && state.pins == 0 && !state.parked;
  }
  static bool is_held(const TensorState& state);

  struct Candidate {
    std::uint64_t key;
    std::uint32_t tensor;
  };
  static bool is_later(const Candidate& a, const Candidate& b) { return a.key > b.key; }
  static std::uint64_t key_of(const TensorState& state) {
    return state.tick | (state.kept ? std::uint64_t{1} << 63 : 0);
  }
  // Calls `look` with the tensors that stream_victim() may choose, until it returns false.
  template <class Look>
  void look_at_streamed(const Policy& policy, std::size_t distance, Look look) const;
  void enqueue(std::size_t tensor);
  // Takes the first candidate that the rule allows off the queue. Tensors that the rule spares go to `spared`.
  std::optional<Candidate> take_first(VictimRule rule, std::vector<Candidate>& spared);
  Candidate pop();
  void push(Candidate candidate);
  // Whether a caller holds the tensor, which is then parked.
  bool park_if_held(TensorState& state);

  const TensorTable& table_;
  std::vector<TensorState> states_;
  std::uint64_t tick_ = 0;
  std::uint64_t resident_bytes_ = 0;
  std::uint64_t protected_bytes_ = 0;
  std::size_t resident_count_ = 0;
  std::atomic<std::size_t> parked_count_{0};
  std::vector<Candidate> queue_;  // a heap, the smallest key first
};

}  // namespace weightstore::pager
