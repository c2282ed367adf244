#pragma once

// Counts every allocation of the program, to see what an operation costs. The program must be linked with
// counted_memory.cc, which replaces operator new.

#include <atomic>
#include <cstddef>

namespace counted_memory {

inline std::atomic<std::size_t> live{0};
inline std::atomic<std::size_t> peak{0};
inline std::atomic<std::size_t> total{0};  // of all allocations, whether they are freed or not

// The most memory that was live while `operation` ran, beside what was there before.
template <class Operation>
std::size_t peak_of(Operation operation) {
  const std::size_t before = live;
  peak = before;
  operation();
  return peak - before;
}

}  // namespace counted_memory
