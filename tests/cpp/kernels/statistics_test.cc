// The kernels of statistics: every path gives the same bits, and the numbers are those of plain loops.

#include "kernels/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "kernels/differences.h"
#include "kernels/differences_block.h"
#include "kernels/histogram.h"
#include "kernels/histogram_bins.h"
#include "kernels/statistics_block.h"

using namespace weightstore;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kTiny = std::numeric_limits<float>::denorm_min();

template <class T>
ConstBytes bytes_of(const std::vector<T>& numbers) {
  return std::as_bytes(std::span(numbers));
}

template <class T>
bool same_bits(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

// Arrays of all lengths around those of vectors, of several kinds of numbers.
template <class T>
std::vector<std::vector<T>> arrays() {
  std::vector<std::vector<T>> all;
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  const std::vector<std::size_t> sizes = {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 100, 1023, 1024, 2047, 2048};
  for (const std::size_t size : sizes) {
    for (int kind = 0; kind < 6; ++kind) {
      std::vector<T> numbers(size);
      for (T& number : numbers) {
        const double some = normal(random);
        number = static_cast<T>(kind == 0   ? some
                                : kind == 1 ? 1e6 + some
                                : kind == 2 ? 1.0
                                : kind == 3 ? std::round(some)
                                : kind == 4 ? some * 1e-40
                                            : 0.0);
      }
      if (kind == 5) {
        const T hard[] = {T(kLargest), T(-kLargest), T(kTiny), T(-0.0), T(1)};
        for (std::size_t i = 0; i < size; i += 3) numbers[i] = hard[i % 5];
      }
      all.push_back(numbers);
    }
  }
  return all;
}

template <class T>
void compare_sums() {
  for (const std::vector<T>& numbers : arrays<T>()) {
    const kernels::BlockSums a = kernels::sum_block(numbers.data(), numbers.size());
    const kernels::BlockSums b = kernels::portable::sum_block(numbers.data(), numbers.size());
    CHECK(same_bits(a.sum, b.sum) && same_bits(a.squares, b.squares));
    CHECK(same_bits(a.min, b.min) && same_bits(a.max, b.max) && a.zeros == b.zeros);
    CHECK(a.min == static_cast<double>(*std::min_element(numbers.begin(), numbers.end())));
    CHECK(a.max == static_cast<double>(*std::max_element(numbers.begin(), numbers.end())));
    CHECK(a.zeros == static_cast<std::uint64_t>(std::count(numbers.begin(), numbers.end(), T(0))));
    const kernels::DistanceSums c = kernels::sum_distances(numbers.data(), numbers.size(), 0.3);
    const kernels::DistanceSums d = kernels::portable::sum_distances(numbers.data(), numbers.size(), 0.3);
    CHECK(same_bits(c.sum, d.sum) && same_bits(c.squares, d.squares));
  }
}

TEST(all_paths_give_the_same_sums) {
  compare_sums<float>();
  compare_sums<double>();
}

TEST(numbers_at_any_address) {
  const std::vector<float> numbers = arrays<float>()[60];
  std::vector<std::byte> shifted(numbers.size() * 4 + 1);
  std::memcpy(shifted.data() + 1, numbers.data(), numbers.size() * 4);
  const kernels::Moments a = kernels::moments_of(DType::kF32, bytes_of(numbers));
  const kernels::Moments b = kernels::moments_of(DType::kF32, ConstBytes(shifted).subspan(1));
  CHECK(same_bits(a.mean, b.mean) && same_bits(a.squares, b.squares) && a.min == b.min);
}

TEST(a_number_that_is_not_finite_is_counted_wherever_it_is) {
  for (const std::size_t size : {1u, 8u, 16u, 21u, 2048u, 2060u}) {
    for (std::size_t i = 0; i < size; i = i < 40 ? i + 1 : i + 97) {
      for (const float hard : {kNan, -kNan, kInfinity, -kInfinity}) {
        std::vector<float> numbers(size, 2);
        numbers[i] = hard;
        const kernels::Moments found = kernels::moments_of(DType::kF32, bytes_of(numbers));
        CHECK_EQ(found.nans, std::isnan(hard) ? 1u : 0u);
        CHECK_EQ(found.infinities, std::isinf(hard) ? 1u : 0u);
        CHECK_EQ(found.finite, size - 1);
        CHECK(size == 1 || (found.min == 2 && found.max == 2 && found.mean == 2 && found.squares == 0));
      }
    }
  }
}

TEST(numbers_close_together_keep_their_deviation) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<double> numbers(5000);
  for (double& number : numbers) number = 1e9 + normal(random);
  long double mean = 0, squares = 0;
  for (const double number : numbers) mean += number;
  mean /= static_cast<long double>(numbers.size());
  for (const double number : numbers) squares += (number - mean) * (number - mean);
  const kernels::Moments found = kernels::moments_of(DType::kF64, bytes_of(numbers));
  CHECK(std::fabs(found.squares - static_cast<double>(squares)) < 1e-9 * static_cast<double>(squares));
}

TEST(doubles_whose_squares_overflow) {
  const std::vector<double> numbers = {1e300, -1e300, 1e300, 3};
  const kernels::Moments found = kernels::moments_of(DType::kF64, bytes_of(numbers));
  CHECK_EQ(found.finite, 4u);
  CHECK(std::fabs(found.mean - 2.5e299) < 1e285);
}

std::vector<std::uint64_t> counted(const std::vector<float>& numbers, float low, float high, std::size_t bins) {
  kernels::Histogram histogram(DType::kF32, low, high, bins);
  histogram.add(bytes_of(numbers));
  return histogram.counts();
}

TEST(histograms_are_those_of_a_plain_loop) {
  for (std::vector<float> numbers : arrays<float>()) {
    const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
    const double first = static_cast<double>(*low), width = static_cast<double>(*high) - first;
    for (const std::size_t bins : {1u, 2u, 24u, 34u, 35u, 64u, 1000u}) {
      std::vector<std::uint64_t> expected(bins);
      const double scale = width > 0 ? static_cast<double>(bins) / width : 0;
      if (!std::isfinite(scale)) continue;
      for (const float number : numbers) {
        const auto bin = static_cast<std::size_t>((static_cast<double>(number) - first) * scale);
        ++expected[std::min(bin, bins - 1)];
      }
      CHECK(counted(numbers, *low, *high, bins) == expected);
      std::vector<float> with_others = numbers;
      with_others.insert(with_others.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2),
                         {kNan, kInfinity, -kInfinity});
      CHECK(counted(with_others, *low, *high, bins) == expected);
    }
  }
}

TEST(all_paths_find_the_same_bins) {
  for (std::vector<float> numbers : arrays<float>()) {
    const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
    const double first = static_cast<double>(*low);
    const double scale = *high > *low ? 24 / (static_cast<double>(*high) - first) : 0;
    if (!std::isfinite(scale)) continue;
    numbers.front() = kNan;
    numbers.back() = -kInfinity;
    std::vector<std::int32_t> a(numbers.size()), b(numbers.size());
    kernels::find_bins(numbers.data(), numbers.size(), first, scale, 25, a.data());
    kernels::portable::find_bins(numbers.data(), numbers.size(), first, scale, 25, b.data());
    CHECK(a == b);
    std::vector<std::uint32_t> c(numbers.size()), d(numbers.size());
    const std::size_t done = kernels::find_pairs(numbers.data(), numbers.size(), first, scale, 25, c.data());
    CHECK_EQ(done, kernels::portable::find_pairs(numbers.data(), numbers.size(), first, scale, 25, d.data()));
    CHECK_EQ(done, numbers.size() / 16 * 16);
    CHECK(c == d);
  }
}

TEST(all_paths_find_the_same_differences) {
  const std::vector<std::vector<float>> all = arrays<float>();
  for (std::size_t k = 0; k + 1 < all.size(); ++k) {
    std::vector<float> a = all[k], b = all[k + 1];
    a.resize(std::min(a.size(), b.size()));
    b.resize(a.size());
    for (int changed = 0; changed < 3; ++changed) {
      if (changed == 1) std::transform(a.begin(), a.end(), b.begin(), [](float x) { return x * 1.001f; });
      if (changed == 2) b = a, b.back() = 7;
      for (const double before : {0.0, 0.01, 1.9}) {
        const auto x = kernels::compare_block(a.data(), b.data(), a.size(), before);
        const auto y = kernels::portable::compare_block(a.data(), b.data(), a.size(), before);
        if (!x.is_finite) continue;  // a difference of floats may be beyond the largest one: then pairs are looked at
        CHECK(y.is_finite && x.differing == y.differing);
        CHECK(same_bits(x.absolute, y.absolute) && same_bits(x.relative, y.relative));
      }
    }
  }
}

TEST(differences_are_those_of_a_plain_loop) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> a(5001), b(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = normal(random);
    b[i] = i % 7 == 0 ? a[i] : a[i] * (1 + normal(random) * 1e-3f);
  }
  for (const bool hard : {false, true}) {
    if (hard) {
      a[10] = kNan, b[10] = kNan;            // equal
      a[11] = kNan, b[12] = kInfinity;       // no distance
      a[13] = kInfinity, b[13] = kInfinity;  // equal
      a[14] = kLargest, b[14] = -kLargest;   // further apart than a float can say
      a[15] = 0.0f, b[15] = -0.0f, a[16] = 0, b[16] = kTiny;
    }
    kernels::Differences expected;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      ++expected.differing;
      if (!std::isfinite(x) || !std::isfinite(y)) {
        ++expected.unmeasured;
        continue;
      }
      expected.max_absolute = std::max(expected.max_absolute, std::fabs(x - y));
      expected.max_relative = std::max(expected.max_relative, std::fabs(x - y) / std::max(std::fabs(x), std::fabs(y)));
    }
    kernels::Differences found;
    kernels::compare_numbers(DType::kF32, bytes_of(a), DType::kF32, bytes_of(b), found);
    CHECK_EQ(found.count, a.size());
    CHECK_EQ(found.differing, expected.differing);
    CHECK_EQ(found.unmeasured, expected.unmeasured);
    CHECK(same_bits(found.max_absolute, expected.max_absolute));
    CHECK(same_bits(found.max_relative, expected.max_relative));
  }
}

}  // namespace

RUN_TESTS()
