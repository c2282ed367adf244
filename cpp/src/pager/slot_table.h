#pragma once

// Which tensors are resident, and which of them is to go next.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "weightstore/byte_source.h"
#include "weightstore/pager.h"

namespace weightstore::pager {

// The bytes of one tensor in memory. The table, every handle and every waiter has one reference; the last to drop its
// reference gives the memory back.
//
// What a hit and a release touch comes first, in one cache line: among many tensors it is not in the cache.
struct alignas(64) Block {
  std::atomic<std::uint32_t> refs{0};
  std::uint32_t slot = 0;
  std::shared_ptr<Core> core;  // keeps the account that the memory goes back to
  ConstBytes bytes;
  std::uint64_t charge = 0;   // what it counts for in live_bytes
  SharedMutableBytes buffer;  // where they are; or, zero copy,
  std::shared_ptr<const void> view_owner;

  // A reference to a block that the caller does not own one of; false when the last one is being dropped.
  bool try_reference() {
    std::uint32_t now = refs.load(std::memory_order_relaxed);
    while (now != 0) {
      if (refs.compare_exchange_weak(now, now + 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
    }
    return false;
  }
};

enum class Presence : std::uint8_t {
  kAbsent,
  kQueued,  // to be prefetched
  kLoading,
  kResident,  // the table has a reference to its block
  kHeld,      // evicted, but somebody has a reference; the table remembers the block without one
};

struct alignas(32) Slot {
  Block* block = nullptr;
  std::uint64_t tick = 0;  // of the last use
  std::uint64_t hits = 0;
  std::uint32_t pins = 0;
  Presence presence = Presence::kAbsent;
  bool prefetched = false;  // resident, and not acquired since it was prefetched
};

// Slots in least-recently-used order, without a list: a use is a store, and the order is looked at when there is a
// miss. Thread-compatible: the pager's mutex guards it.
//
// Invariants: resident_bytes() is the sum of the sizes of the slots that are kResident, and likewise for the pinned and
// the prefetched among them. Presence changes to and from kResident only in insert() and remove().
class SlotTable {
 public:
  explicit SlotTable(const TensorTable& tensors) : tensors_(tensors), slots_(tensors.size()) {}

  Slot& operator[](std::size_t i) { return slots_[i]; }
  const Slot& operator[](std::size_t i) const { return slots_[i]; }
  std::size_t size() const { return slots_.size(); }

  void use(Slot& slot) { slot.tick = ++tick_; }
  // Makes a slot resident with a block whose reference the table takes over, as used now.
  void insert(std::size_t i, Block* block, bool prefetched);
  // The reverse; the reference is the caller's, who also decides what the slot is now.
  Block* remove(std::size_t i);
  // An acquire of something prefetched; returns whether it was.
  bool clear_prefetched(std::size_t i);
  void pin(std::size_t i);
  void unpin(std::size_t i);

  std::uint64_t resident_bytes() const { return resident_bytes_; }
  std::size_t resident_count() const { return resident_count_; }
  // Resident and pinned, or prefetched and not used: what a prefetch must not push out.
  std::uint64_t kept_bytes() const { return kept_bytes_; }

  // The resident slot that was used longest ago among those that are not pinned, satisfying the caller's wish about
  // holders and prefetched ones; nullopt when there is none.
  struct Wish {
    bool unheld = false;  // nobody but the table has a reference
    bool no_prefetched = false;
  };
  std::optional<std::size_t> victim(Wish wish);
  // Whether victims that satisfy it have this much memory together.
  bool can_free(std::uint64_t bytes, Wish wish) const;

 private:
  static bool kept(const Slot& slot) { return slot.pins > 0 || slot.prefetched; }
  bool allows(const Slot& slot, Wish wish) const;
  void find_oldest();

  struct Candidate {
    std::uint64_t tick;
    std::uint32_t slot;
  };

  const TensorTable& tensors_;
  std::vector<Slot> slots_;
  std::uint64_t tick_ = 0;
  std::uint64_t resident_bytes_ = 0;
  std::uint64_t kept_bytes_ = 0;
  std::size_t resident_count_ = 0;
  // The oldest slots as they were at some time, the oldest last. Those that were used since have another tick, and are
  // younger than all that were not: what remains is in order, and older than everything that is not here.
  std::vector<Candidate> oldest_;
};

}  // namespace weightstore::pager
