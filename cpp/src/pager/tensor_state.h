#pragma once

// What the pager knows about one tensor.

#include <atomic>
#include <cstdint>

#include "pager/frame.h"
#include "pager/references.h"
#include "weightstore/pager.h"

namespace weightstore::pager {

enum class Presence : std::uint8_t {
  kAbsent,
  kQueued,    // waits to be prefetched
  kLoading,   // some thread loads it, or is about to
  kResident,  // it is in the pager's table
  kHeld,      // evicted, but a caller has a reference
};

// One cache line, and all that a hit or a release touches: with many tensors that line is not in the cache. The pager's
// mutex guards what is neither atomic nor said to be constant.
struct alignas(64) TensorState {
  References references;
  std::atomic<std::uint64_t> tick{0};  // of the last use
  ConstBytes bytes;                    // constant while there are references
  Frame* frame = nullptr;              // when kResident or kHeld; constant while there are references
  PagerStats* stats = nullptr;         // of this tensor (Statistics); null when nothing was counted yet
  std::uint32_t tensor = 0;            // its number; constant
  std::uint32_t pins = 0;
  std::uint32_t load = 0;  // kLoading: the number of its load (LoadScheduler)
  Presence presence = Presence::kAbsent;
  bool prefetched : 1 = false;  // resident, and nobody has acquired it since it was prefetched
  bool charged : 1 = false;     // loading, and live_bytes() counts its memory
  bool kept : 1 = false;        // the policy wants it to stay in memory
  bool queued : 1 = false;      // has an entry in the queue of candidates
  bool parked : 1 = false;      // a caller held it when a victim was searched; not a candidate until it is released
};
static_assert(sizeof(TensorState) == 64);

}  // namespace weightstore::pager
