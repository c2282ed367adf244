#pragma once

// The inner loops of histogram.cc: which bins the numbers of one block are in.

#include <cstddef>
#include <cstdint>

namespace weightstore::kernels {

// bins[i] = (number - low) * scale, rounded towards zero; `none` for NaN and for what is `none` or greater. No number
// is less than `low` unless it is infinite. `none` is less than 2^31. The numbers need not be aligned.
void find_bins(const float* numbers, std::size_t count, double low, double scale, std::int32_t none,
               std::int32_t* bins);
void find_bins(const double* numbers, std::size_t count, double low, double scale, std::int32_t none,
               std::int32_t* bins);

// Bins of two numbers at a time: bin * (none + 1) + other bin, for the numbers of a whole multiple of 16; which two
// belong together is left open. `none` is less than 2^15. Returns how many numbers were looked at.
std::size_t find_pairs(const float* numbers, std::size_t count, double low, double scale, std::int32_t none,
                       std::uint32_t* pairs);

// The same without instructions that some processors lack.
namespace portable {
void find_bins(const float* numbers, std::size_t count, double low, double scale, std::int32_t none,
               std::int32_t* bins);
std::size_t find_pairs(const float* numbers, std::size_t count, double low, double scale, std::int32_t none,
                       std::uint32_t* pairs);
}  // namespace portable

}  // namespace weightstore::kernels
