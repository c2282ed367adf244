#pragma once

// Memory for results that a program makes, drops and makes again, such as the numbers of one tensor after another. The
// kernel clears new pages, which takes longer than to compute what is written to them. So the memory of a dropped
// result is kept for the next one.

#include <cstddef>

#include "weightstore/byte_source.h"

namespace weightstore::io {

// Results of less than this are left to malloc(), which keeps memory, too.
inline constexpr std::size_t kLeastRecycled = std::size_t{1} << 20;
// As much is kept at most, all spare memory together.
inline constexpr std::size_t kMostSpare = std::size_t{256} << 20;

// Memory with any content, for a caller that writes all of it. Like memory of allocate_bulk(), but a dropped result may
// have been there before. Until it is used again, spare memory is the kernel's to take away (MADV_FREE): it counts as
// available, although the process still has it. Throws Error(kMemory) when there is not enough. Thread-safe, and never
// waits for another thread, so that a child of fork() can use it.
SharedMutableBytes allocate_recycled(std::size_t size);

}  // namespace weightstore::io
