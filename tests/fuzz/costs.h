#pragma once

// What an operation costs, counted rather than timed: the same on every machine.

#include <cstdint>

struct Costs {
  std::uint64_t peak = 0;       // bytes of memory that were allocated at one time
  std::uint64_t allocated = 0;  // bytes of all allocations
  std::uint64_t moved = 0;      // bytes that memcpy(), memcmp() and their like went over
  std::uint64_t steps = 0;      // branches of the library's code; only fuzz builds count them, 0 in others
};

// Counts from its construction on. There is one count for the whole program: meters must not overlap.
class Meter {
 public:
  Meter();
  Costs costs() const;

 private:
  Costs begin_;
};
