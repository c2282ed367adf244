#pragma once

// Which tensors are in memory, and which of them the pager evicts next.

#include <cstdint>
#include <optional>
#include <vector>

#include "pager/frame.h"
#include "weightstore/tensor.h"

namespace weightstore::pager {

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
  bool prefetched = false;  // resident, and nobody has acquired it since it was prefetched
  bool charged = false;     // loading, and live_bytes() counts its memory
};

// Which resident tensors the pager may evict. It never evicts pinned ones.
struct VictimRule {
  bool only_unheld = false;       // only tensors to which no caller has a reference
  bool spare_prefetched = false;  // no tensor that was prefetched and not used yet
};

// The state of every tensor, in least-recently-used order. There is no list: a use stores a tick, and a miss looks for
// the smallest ones. The caller holds the pager's mutex.
//
// Invariants: resident_bytes() is the sum of the sizes of the kResident tensors; protected_bytes() is the same sum over
// those that are pinned or prefetched. Only insert() and remove() change a presence to or from kResident.
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
  // After a caller has acquired a prefetched tensor.
  void clear_prefetched(std::size_t tensor);
  void pin(std::size_t tensor);
  void unpin(std::size_t tensor);

  std::uint64_t resident_bytes() const { return resident_bytes_; }
  std::size_t resident_count() const { return resident_count_; }
  // The bytes of resident tensors that a prefetch must not evict: the pinned, and the prefetched but unused ones.
  std::uint64_t protected_bytes() const { return protected_bytes_; }

  // The least recently used tensor that the rule allows to evict; nullopt when there is none.
  std::optional<std::size_t> victim(VictimRule rule);
  // Whether the frames of all tensors that the rule allows to evict have at least this much memory.
  bool can_free(std::uint64_t bytes, VictimRule rule) const;

 private:
  static bool is_protected(const TensorState& state) { return state.pins > 0 || state.prefetched; }
  static bool is_candidate(const TensorState& state) {
    return state.presence == Presence::kResident && state.pins == 0;
  }
  static bool allows(const TensorState& state, VictimRule rule);
  void find_oldest();

  struct Candidate {
    std::uint64_t tick;
    std::uint32_t tensor;
  };

  const TensorTable& table_;
  std::vector<TensorState> states_;
  std::uint64_t tick_ = 0;
  std::uint64_t resident_bytes_ = 0;
  std::uint64_t protected_bytes_ = 0;
  std::size_t resident_count_ = 0;
  // The least recently used tensors at some earlier time, the oldest last. A tensor that was used since then has a new
  // tick, and is younger than all tensors that were not used. So the entries with an unchanged tick are still in order,
  // and older than every tensor that is not in this list.
  std::vector<Candidate> oldest_;
};

}  // namespace weightstore::pager
