#pragma once

// Memory for bulk data. Touching fresh 4 KiB pages costs more than copying what goes into them; 2 MiB pages do not.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weightstore/byte_source.h"

namespace weightstore::io {

// Zeroed memory, aligned to 2 MiB and backed by huge pages where the kernel has them when `size` is at least that, to
// 4096 bytes otherwise. Freed with the last owner. The kernel provides the memory when it is written to, and ends the
// process when there is none: call require_memory() before filling a lot of it. Throws std::bad_alloc.
SharedMutableBytes allocate_bulk(std::size_t size);

// Touches memory of allocate_bulk() ahead of its first use, and watches what that takes. A huge page takes a fraction
// of what its small pages would - except where a hypervisor has taken free memory away: then it takes twenty times as
// long, while small pages, which the kernel has nearer at hand, take what they always do. Once that shows, the rest of
// the memory gets small pages. Thread-safe.
class FreshPages {
 public:
  // Of memory that is `known` ahead all is told at once that its pages are to be small: telling the kernel of a part
  // makes it wait for all that is being touched meanwhile. `known` is the caller's, and stays.
  explicit FreshPages(std::span<const MutableBytes> known = {}) : known_(known) {}

  // Nothing of `part`, which lies in what is known if anything is, was written to yet. What it shares a huge page with
  // may have been.
  void touch(MutableBytes part);

 private:
  void touch_huge(std::uintptr_t page);
  bool are_slow() const;

  const std::span<const MutableBytes> known_;
  std::atomic<int> slow_touches_{0};
};

}  // namespace weightstore::io
