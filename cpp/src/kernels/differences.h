#pragma once

// Compares numbers in memory, on the calling thread: what compare_values() of weightstore/statistics.h is made of.

#include <cstdint>

#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"

namespace weightstore::kernels {

// What was found so far.
struct Differences {
  std::uint64_t count = 0;      // numbers that were compared
  std::uint64_t differing = 0;  // numbers that are not equal. NaN equals NaN here, and -0 equals 0
  // The largest of pairs of finite numbers. A pair with a NaN or an infinity that differs has no distance; unmeasured
  // counts them.
  double max_absolute = 0;
  double max_relative = 0;  // |a - b| / max(|a|, |b|)
  std::uint64_t unmeasured = 0;
};

// Compares as many numbers of two types (each a number_type()) as both arrays hold; they must hold the same number.
// Adds to `found`.
void compare_numbers(DType a_type, ConstBytes a, DType b_type, ConstBytes b, Differences& found);

}  // namespace weightstore::kernels
