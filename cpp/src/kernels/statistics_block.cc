#include "kernels/statistics_block.h"

#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#define WEIGHTSTORE_AVX2 __attribute__((target("avx2,fma")))
#endif

namespace weightstore::kernels {
namespace {

template <class T>
T number_at(const T* numbers, std::size_t i) {
  T number;
  std::memcpy(&number, reinterpret_cast<const std::byte*>(numbers) + i * sizeof number, sizeof number);
  return number;
}

template <class T>
void add_portable(const T* numbers, std::size_t begin, std::size_t count, double shift, BlockSums& sums) {
  for (std::size_t i = begin; i < count; ++i) {
    const double number = static_cast<double>(number_at(numbers, i));
    const double distance = number - shift;
    sums.min = number < sums.min ? number : sums.min;
    sums.max = number > sums.max ? number : sums.max;
    sums.sum += distance;
    sums.squares += distance * distance;
    sums.zeros += number == 0;
  }
}

template <class T>
void bins_portable(const T* numbers, std::size_t begin, std::size_t count, double low, double scale, std::int32_t none,
                   std::int32_t* bins) {
  for (std::size_t i = begin; i < count; ++i) {
    const double bin = (static_cast<double>(number_at(numbers, i)) - low) * scale;
    bins[i] = bin >= 0 && bin < none ? static_cast<std::int32_t>(bin) : none;
  }
}

BlockSums no_sums() {
  return {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), 0, 0, 0};
}

#if defined(__x86_64__)

bool has_avx2() {
  static const bool found = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return found;
}

WEIGHTSTORE_AVX2 inline double sum_of(__m256d lanes) {
  alignas(32) double parts[4];
  _mm256_store_pd(parts, lanes);
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

WEIGHTSTORE_AVX2 inline __m256d low_half(__m256 floats) { return _mm256_cvtps_pd(_mm256_castps256_ps128(floats)); }
WEIGHTSTORE_AVX2 inline __m256d high_half(__m256 floats) { return _mm256_cvtps_pd(_mm256_extractf128_ps(floats, 1)); }

// Eight numbers a step. Sums are of doubles, so that no digits are lost; each has a register of its own for the lower
// and the upper four.
WEIGHTSTORE_AVX2 std::size_t sum_vectors(const float* numbers, std::size_t count, double shift, BlockSums& sums) {
  const std::size_t steps = count / 8;
  if (steps == 0) return 0;
  const __m256d center = _mm256_set1_pd(shift);
  __m256 min = _mm256_loadu_ps(numbers);
  __m256 max = min;
  __m256i zeros = _mm256_setzero_si256();
  __m256d sum0 = _mm256_setzero_pd(), sum1 = sum0, squares0 = sum0, squares1 = sum0;
  for (std::size_t i = 0; i < steps; ++i) {
    const __m256 values = _mm256_loadu_ps(numbers + i * 8);
    min = _mm256_min_ps(values, min);
    max = _mm256_max_ps(values, max);
    const __m256 is_zero = _mm256_cmp_ps(values, _mm256_setzero_ps(), _CMP_EQ_OQ);
    zeros = _mm256_sub_epi32(zeros, _mm256_castps_si256(is_zero));
    const __m256d distance0 = _mm256_sub_pd(low_half(values), center);
    const __m256d distance1 = _mm256_sub_pd(high_half(values), center);
    sum0 = _mm256_add_pd(sum0, distance0);
    sum1 = _mm256_add_pd(sum1, distance1);
    squares0 = _mm256_fmadd_pd(distance0, distance0, squares0);
    squares1 = _mm256_fmadd_pd(distance1, distance1, squares1);
  }
  alignas(32) float lows[8], highs[8];
  alignas(32) std::uint32_t counts[8];
  _mm256_store_ps(lows, min);
  _mm256_store_ps(highs, max);
  _mm256_store_si256(reinterpret_cast<__m256i*>(counts), zeros);
  for (std::size_t lane = 0; lane < 8; ++lane) {
    sums.min = lows[lane] < sums.min ? lows[lane] : sums.min;
    sums.max = highs[lane] > sums.max ? highs[lane] : sums.max;
    sums.zeros += counts[lane];
  }
  sums.sum = sum_of(_mm256_add_pd(sum0, sum1));
  sums.squares = sum_of(_mm256_add_pd(squares0, squares1));
  return steps * 8;
}

// What does not fit an int, such as a NaN, becomes its smallest number, which is large without its sign.
WEIGHTSTORE_AVX2 std::size_t bin_vectors(const float* numbers, std::size_t count, double low, double scale,
                                         std::int32_t none, std::int32_t* bins) {
  const __m256d first = _mm256_set1_pd(low);
  const __m256d factor = _mm256_set1_pd(scale);
  const __m256i most = _mm256_set1_epi32(none);
  const std::size_t steps = count / 8;
  for (std::size_t i = 0; i < steps; ++i) {
    const __m256 values = _mm256_loadu_ps(numbers + i * 8);
    const __m128i lower = _mm256_cvttpd_epi32(_mm256_mul_pd(_mm256_sub_pd(low_half(values), first), factor));
    const __m128i upper = _mm256_cvttpd_epi32(_mm256_mul_pd(_mm256_sub_pd(high_half(values), first), factor));
    const __m256i found = _mm256_min_epu32(_mm256_set_m128i(upper, lower), most);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bins + i * 8), found);
  }
  return steps * 8;
}

#else

bool has_avx2() { return false; }
std::size_t sum_vectors(const float*, std::size_t, double, BlockSums&) { return 0; }
std::size_t bin_vectors(const float*, std::size_t, double, double, std::int32_t, std::int32_t*) { return 0; }

#endif

}  // namespace

BlockSums sum_block(const float* numbers, std::size_t count, double shift) {
  BlockSums sums = no_sums();
  const std::size_t done = has_avx2() ? sum_vectors(numbers, count, shift, sums) : 0;
  add_portable(numbers, done, count, shift, sums);
  return sums;
}

BlockSums sum_block(const double* numbers, std::size_t count, double shift) {
  BlockSums sums = no_sums();
  add_portable(numbers, 0, count, shift, sums);
  return sums;
}

void find_bins(const float* numbers, std::size_t count, double low, double scale, std::int32_t none,
               std::int32_t* bins) {
  const std::size_t done = has_avx2() ? bin_vectors(numbers, count, low, scale, none, bins) : 0;
  bins_portable(numbers, done, count, low, scale, none, bins);
}

void find_bins(const double* numbers, std::size_t count, double low, double scale, std::int32_t none,
               std::int32_t* bins) {
  bins_portable(numbers, 0, count, low, scale, none, bins);
}

}  // namespace weightstore::kernels
