#pragma once

// Statistics of numbers in memory, on the calling thread: what weightstore/statistics.h is made of.

#include <cstdint>
#include <limits>

#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"

namespace weightstore::kernels {

// What is known about some numbers. Parts of a tensor are looked at apart and then added up.
struct Moments {
  std::uint64_t finite = 0;
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
  std::uint64_t zeros = 0;
  // Of the finite numbers.
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double mean = 0;
  double squares = 0;  // the sum of the squared distances from the mean
  // The extremes of I64 and U64, which double cannot hold: U64 as it is, I64 with the sign bit flipped, which keeps the
  // order.
  std::uint64_t min_integer = ~std::uint64_t{0};
  std::uint64_t max_integer = 0;

  void add(const Moments& other);
};
inline constexpr std::uint64_t kSignBit = std::uint64_t{1} << 63;

// The moments of the numbers in `bytes`. `type` is a number_type() whose number_kind() is not kNone.
Moments moments_of(DType type, ConstBytes bytes);

}  // namespace weightstore::kernels
