#pragma once

// The numbers of tensors at a glance: their range, mean and histogram, and how far two tensors are apart. Tensors are
// streamed on several threads, and never loaded as a whole unless they are quantized and their bytes cannot be viewed.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "weightstore/progress.h"
#include "weightstore/reader.h"
#include "weightstore/tensor.h"

namespace weightstore {

// What the numbers of a tensor are. A complex element is two numbers, a bool is 0 or 1, and a quantized tensor is the
// numbers that it stands for.
struct Statistics {
  std::uint64_t count = 0;  // of all numbers, the others included
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;
  std::uint64_t zeros = 0;
  // Of the finite numbers. NaN when there are none. The extremes of integers of 64 bits are integers.
  Scalar min = 0.0;
  Scalar max = 0.0;
  double mean = 0;
  double deviation = 0;  // the standard deviation: the root of the mean squared distance from the mean; may overflow
  // How many finite numbers are in each of StatisticsOptions::bins bins of equal width, from min to max. A number on
  // the border of two bins counts for the upper one.
  std::vector<std::uint64_t> histogram;
};

struct StatisticsOptions {
  std::size_t bins = 0;  // of the histograms, at most 65536; 0: no histograms, which takes half the time
  unsigned threads = 0;  // 0: one for each processor, 2 to 8
  Progress progress{};   // in bytes of the file; can cancel
};

// The statistics of tensors, by their numbers in the table. nullopt for a type whose numbers the
// library cannot tell: F6, and types of blocks that are not dequantized. Throws as
// Reader::producer() does when a tensor is damaged, and as Reader::load() does.
std::vector<std::optional<Statistics>> statistics_of(const Reader& reader, std::span<const std::size_t> tensors,
                                                     const StatisticsOptions& options = {});

// How far two tensors are apart.
struct ValueDifference {
  std::uint64_t count = 0;       // numbers that were compared
  std::uint64_t differing = 0;   // numbers that are not equal. NaN equals NaN, and -0 equals 0
  std::uint64_t unmeasured = 0;  // of these, pairs with a NaN or an infinity, which have no distance
  double max_absolute = 0;       // the largest |a - b|
  double max_relative = 0;       // the largest |a - b| / max(|a|, |b|)
};

// Compares tensors of two files number by number, whatever their types are: the pairs are their numbers in the tables
// of `a` and `b`. Two tensors of one type that has no numbers are compared byte by byte. nullopt for any other pair
// of which one has no numbers, or which have different counts of them.
std::vector<std::optional<ValueDifference>> compare_values(const Reader& a, const Reader& b,
                                                           std::span<const std::pair<std::size_t, std::size_t>> pairs,
                                                           const StatisticsOptions& options = {});

}  // namespace weightstore
