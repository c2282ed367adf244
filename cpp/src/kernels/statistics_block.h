#pragma once

// The inner loops of statistics.cc: one block of numbers at a time, so that a block that has a NaN or an infinity can
// be looked at again with care.

#include <cstddef>
#include <cstdint>

namespace weightstore::kernels {

// Sums over a block. If any number is not finite, `sum` is not finite either, and the other fields mean nothing.
struct BlockSums {
  double min;
  double max;
  double sum;      // of the distances from `shift`
  double squares;  // of these
  std::uint64_t zeros;
};

// `count` is at least 1. The numbers need not be aligned. Distances are taken from `shift`, a number near the others,
// so that the variance of large numbers that lie close together keeps its digits.
BlockSums sum_block(const float* numbers, std::size_t count, double shift);
BlockSums sum_block(const double* numbers, std::size_t count, double shift);

// bins[i] = (number - low) * scale, rounded towards zero; `none` for what is NaN, negative or greater than `none`.
// `none` is less than 2^31.
void find_bins(const float* numbers, std::size_t count, double low, double scale, std::int32_t none,
               std::int32_t* bins);
void find_bins(const double* numbers, std::size_t count, double low, double scale, std::int32_t none,
               std::int32_t* bins);

}  // namespace weightstore::kernels
