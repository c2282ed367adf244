#pragma once

// How many callers use a tensor, and how often it was hit: one atomic word, so that a hit needs no lock.

#include <atomic>
#include <cstdint>

namespace weightstore::pager {

// The references of the callers to one tensor, the number of its hits, and three flags.
//
// Two steps need no mutex: try_hit() takes a reference to a resident tensor, and try_release() drops a reference that
// matters to nobody else. Everything else happens under the pager's mutex: the flags change only there, and so does the
// last reference to a tensor that is not resident. So whoever holds the mutex and finds an absent tensor without
// references knows that nobody uses its memory any more.
class References {
 public:
  // Takes a reference and counts a hit. False when the tensor is not resident, or when somebody under the mutex wants
  // to know about the hit.
  bool try_hit() {
    std::uint64_t now = word_.load(std::memory_order_relaxed);
    while ((now & (kAbsent | kNoteHit | kManyHits)) == 0) {
      if (word_.compare_exchange_weak(now, now + kReference + kHit, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }
  // Drops a reference. False, and nothing happens, when the mutex is needed: the tensor is watched, or this is the last
  // reference to a tensor that is not resident.
  bool try_release() {
    std::uint64_t now = word_.load(std::memory_order_relaxed);
    while ((now & kWatched) == 0 && (now & (kAbsent | kCount)) != (kAbsent | kReference)) {
      if (word_.compare_exchange_weak(now, now - kReference, std::memory_order_release, std::memory_order_relaxed)) {
        return true;
      }
    }
    return false;
  }
  // More references for somebody who has one or holds the mutex.
  void add(std::uint32_t count) { word_.fetch_add(count, std::memory_order_relaxed); }

  // ---- under the pager's mutex -----------------------------------------------------------------------------------
  std::uint32_t count() const { return static_cast<std::uint32_t>(word_.load(std::memory_order_acquire) & kCount); }
  // Drops a reference and returns how many are left.
  std::uint32_t release() {
    return static_cast<std::uint32_t>((word_.fetch_sub(1, std::memory_order_acq_rel) - 1) & kCount);
  }

  // The tensor is resident from now on: its memory was written before.
  void set_resident() { word_.fetch_and(~kAbsent, std::memory_order_release); }
  // The tensor is not resident any more. Returns how many callers still have it.
  std::uint32_t set_absent() {
    return static_cast<std::uint32_t>(word_.fetch_or(kAbsent, std::memory_order_acq_rel) & kCount);
  }
  // The same unless a caller has the tensor; returns whether it was done.
  bool set_absent_if_free() {
    std::uint64_t now = word_.load(std::memory_order_relaxed);
    while ((now & kCount) == 0) {
      if (word_.compare_exchange_weak(now, now | kAbsent, std::memory_order_acq_rel, std::memory_order_relaxed))
        return true;
    }
    return false;
  }

  // Whether the next hit shall take the mutex.
  void note_hit(bool wanted) {
    wanted ? word_.fetch_or(kNoteHit, std::memory_order_relaxed)
           : word_.fetch_and(~kNoteHit, std::memory_order_relaxed);
  }
  // From now on every release takes the mutex. False, and nothing changes, when no caller has the tensor.
  bool watch() {
    std::uint64_t now = word_.load(std::memory_order_acquire);
    while ((now & kCount) != 0) {
      if (word_.compare_exchange_weak(now, now | kWatched, std::memory_order_acq_rel, std::memory_order_acquire))
        return true;
    }
    return false;
  }
  void unwatch() { word_.fetch_and(~kWatched, std::memory_order_relaxed); }

  // The hits since the last call of take_hits().
  std::uint64_t hits() const { return word_.load(std::memory_order_relaxed) / kHit; }
  std::uint64_t take_hits() { return word_.fetch_and(kHit - 1, std::memory_order_relaxed) / kHit; }

 private:
  static constexpr std::uint64_t kReference = 1;
  static constexpr std::uint64_t kCount = 0xFFFFFFFF;
  static constexpr std::uint64_t kAbsent = std::uint64_t{1} << 32;
  static constexpr std::uint64_t kNoteHit = std::uint64_t{1} << 33;
  static constexpr std::uint64_t kWatched = std::uint64_t{1} << 34;
  static constexpr std::uint64_t kHit = std::uint64_t{1}
                                        << 35;  // 29 bits; take_hits() in time keeps them from overflowing
  static constexpr std::uint64_t kManyHits = std::uint64_t{1} << 63;

  std::atomic<std::uint64_t> word_{kAbsent};
};

}  // namespace weightstore::pager
