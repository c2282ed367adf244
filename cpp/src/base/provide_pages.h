#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weightstore {

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; an older kernel refuses it, and pages come one by one
#endif

inline constexpr std::uintptr_t kPageBytes = 4096;

// Asks the kernel for all pages of some memory in one call, which takes half the time of as many page faults. Changes
// nothing in the memory. Returns whether the kernel could; else pages come one by one as they are written to.
inline bool provide_pages(std::uintptr_t begin, std::uintptr_t end) {
  begin &= ~(kPageBytes - 1);
  const std::uintptr_t length = (end - begin + kPageBytes - 1) & ~(kPageBytes - 1);
  return ::madvise(reinterpret_cast<void*>(begin), length, MADV_POPULATE_WRITE) == 0;
}

// For an array with reserved memory, before `more` elements are added to it: provides the pages of the next MiB when
// they reach it. Of the reserved memory, hardly more is touched than is used.
template <class T>
void provide_ahead(const std::vector<T>& array, std::size_t more) {
  constexpr std::size_t kStep = std::size_t{1} << 20;
  const std::size_t before = array.size() * sizeof(T);
  const std::size_t after = before + more * sizeof(T);
  const std::size_t capacity = array.capacity() * sizeof(T);
  if (before / kStep == after / kStep || after > capacity) return;
  const std::size_t step = after / kStep * kStep;
  const auto memory = reinterpret_cast<std::uintptr_t>(array.data());
  provide_pages(memory + step, memory + (capacity - step < kStep ? capacity : step + kStep));
}

}  // namespace weightstore
