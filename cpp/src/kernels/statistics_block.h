#pragma once

// The inner loops of statistics.cc: one block of numbers at a time, while it is in the innermost cache. A block that
// has a NaN or an infinity, or whose numbers lie close together, is looked at again with care.

#include <cstddef>
#include <cstdint>

namespace weightstore::kernels {

// If any number is not finite, `sum` is not finite either, and the other fields mean nothing.
struct BlockSums {
  double min;
  double max;
  double sum;
  double squares;  // the sum of the squared numbers
  std::uint64_t zeros;
};

// The numbers need not be aligned. Whatever the processor, the results are the same bit for bit: numbers are added up
// in 16 lanes, and then the lanes.
BlockSums sum_block(const float* numbers, std::size_t count);
BlockSums sum_block(const double* numbers, std::size_t count);

// Sums over the distances of the numbers from `shift`. Of numbers that are large and close together, the distances from
// one of them keep digits that sum_block() loses.
struct DistanceSums {
  double sum;
  double squares;
};
DistanceSums sum_distances(const float* numbers, std::size_t count, double shift);
DistanceSums sum_distances(const double* numbers, std::size_t count, double shift);

// The same without instructions that some processors lack.
namespace portable {
BlockSums sum_block(const float* numbers, std::size_t count);
BlockSums sum_block(const double* numbers, std::size_t count);
DistanceSums sum_distances(const float* numbers, std::size_t count, double shift);
DistanceSums sum_distances(const double* numbers, std::size_t count, double shift);
}  // namespace portable

}  // namespace weightstore::kernels
