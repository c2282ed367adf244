#pragma once

// The inner loops of differences.cc: one block of pairs at a time, so that a block that has a NaN or an infinity can be
// looked at again with care.

#include <cstddef>
#include <cstdint>

namespace weightstore::kernels {

struct BlockDifferences {
  bool is_finite;  // false if a number may be NaN or infinite: then the other fields mean nothing
  std::uint64_t differing;
  double absolute;  // the largest |a - b|
  double relative;  // the largest |a - b| / max(|a|, |b|), if it is greater than what was passed as `relative`
};

// The numbers need not be aligned. Whatever the processor, the results are the same bit for bit.
BlockDifferences compare_block(const float* a, const float* b, std::size_t count, double relative);
BlockDifferences compare_block(const double* a, const double* b, std::size_t count, double relative);

// The same without instructions that some processors lack.
namespace portable {
BlockDifferences compare_block(const float* a, const float* b, std::size_t count, double relative);
BlockDifferences compare_block(const double* a, const double* b, std::size_t count, double relative);
}  // namespace portable

}  // namespace weightstore::kernels
