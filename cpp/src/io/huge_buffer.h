#pragma once

// Memory for bulk data. The first touch of a 4 KiB page costs more than copying data into it; with 2 MiB pages it does
// not.

#include <cstddef>
#include <cstdint>
#include <span>

#include "io/page_costs.h"
#include "weightstore/byte_source.h"

namespace weightstore::io {

// Zeroed memory. From 2 MiB on it is aligned to 2 MiB and uses huge pages where the kernel has them; smaller memory is
// aligned to 4096 bytes. The last owner frees it. The kernel provides the pages when they are first written, and kills
// the process when it has none: call require_memory() before you fill a lot of memory. Throws std::bad_alloc.
SharedMutableBytes allocate_bulk(std::size_t size);

// How many bytes memory of allocate_bulk(size) has: some more than `size`, up to the end of its last page.
std::size_t mapped_bytes(std::size_t size);

// Asks the kernel for huge pages where others allocated the memory, such as malloc(). Only pages that are not there yet
// and lie inside `memory` become huge.
void prefer_huge_pages(MutableBytes memory);

// Touches memory of allocate_bulk() or after prefer_huge_pages() before its first use, and measures the processor time
// that takes; being interrupted by another thread does not count. Usually a huge page is much faster than the small
// pages that it replaces. But when a hypervisor has taken free memory away from this machine, or the kernel has to make
// room for a huge page first, a huge page can take twenty times as long. When that costs more than small pages would
// have (PageCosts), the rest of the memory gets small pages. Thread-safe.
class FreshPages {
 public:
  // `known` is all memory that will be touched, if the caller knows it. To switch to small pages, the kernel is then
  // told once for all of it: each such call waits for all touches that are going on. `known` outlives this object.
  explicit FreshPages(std::span<const MutableBytes> known = {}) : known_(known) {}

  // Nobody has written to `part` yet. Quickest when no other thread touches the same huge page meanwhile. Its
  // neighbours in the same huge page may have been written. If `known` is not empty, `part` lies in it.
  void touch(MutableBytes part);

 private:
  void touch_one(std::uintptr_t begin, std::uintptr_t end);

  const std::span<const MutableBytes> known_;
  PageCosts costs_;  // of huge pages
};

}  // namespace weightstore::io
