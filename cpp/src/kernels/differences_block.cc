#include "kernels/differences_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define WEIGHTSTORE_AVX2 __attribute__((target("avx2")))
#define WEIGHTSTORE_AVX2_FMA __attribute__((target("avx2,fma")))
#endif

namespace weightstore::kernels {
namespace {

template <class T>
double number_at(const T* numbers, std::size_t i) {
  T number;
  std::memcpy(&number, reinterpret_cast<const std::byte*>(numbers) + i * sizeof number, sizeof number);
  return static_cast<double>(number);
}

template <class T>
[[gnu::always_inline]] inline BlockDifferences compare_lanes(const T* a, const T* b, std::size_t begin,
                                                             std::size_t count, double relative) {
  constexpr std::size_t kLanes = 8;
  double sums[kLanes] = {}, absolute[kLanes] = {}, shares[kLanes] = {}, differing[kLanes] = {};
  const auto compare = [&](std::size_t i, std::size_t j) {
    const double x = number_at(a, i), y = number_at(b, i);
    const double distance = std::fabs(x - y);
    const double size = std::max(std::fabs(x), std::fabs(y));
    const double share = distance / (distance == 0 ? 1 : size);
    sums[j] += distance;
    absolute[j] = distance > absolute[j] ? distance : absolute[j];
    shares[j] = share > shares[j] ? share : shares[j];
    differing[j] += distance != 0 ? 1.0 : 0.0;
  };
  std::size_t i = begin;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) compare(i + j, j);
  }
  for (std::size_t j = 0; i + j < count; ++j) compare(i + j, j);
  BlockDifferences all{true, 0, 0, relative};
  double sum = 0, counted = 0;
  for (std::size_t j = 0; j < kLanes; ++j) {
    sum += sums[j];
    counted += differing[j];
    all.absolute = std::max(all.absolute, absolute[j]);
    all.relative = std::max(all.relative, shares[j]);
  }
  all.is_finite = std::isfinite(sum);
  all.differing = static_cast<std::uint64_t>(counted);
  return all;
}

#if defined(__x86_64__)

bool has_avx2() {
  static const bool found = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return found;
}

WEIGHTSTORE_AVX2_FMA inline double largest_of(__m256d numbers) {
  alignas(32) double lanes[4];
  _mm256_store_pd(lanes, numbers);
  return std::max(std::max(lanes[0], lanes[1]), std::max(lanes[2], lanes[3]));
}

// Divides only where a pair may have a greater share than all before it, which is seldom: of n pairs in any order,
// about log n are the greatest so far. `relative` * size has two roundings at most; kBelow is more than these.
WEIGHTSTORE_AVX2_FMA BlockDifferences compare_vectors(const float* a, const float* b, std::size_t count,
                                                      double relative) {
  constexpr double kBelow = 1 - 0x1p-50;
  const __m256 sign = _mm256_set1_ps(-0.0f);
  const __m256d wide_sign = _mm256_set1_pd(-0.0);
  __m256 broken = _mm256_setzero_ps();  // 0, or NaN once a difference was not finite
  __m256i equal = _mm256_setzero_si256();
  __m256d absolute0 = _mm256_setzero_pd(), absolute1 = absolute0;
  __m256d bar = _mm256_set1_pd(relative * kBelow);
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 x = _mm256_loadu_ps(a + i), y = _mm256_loadu_ps(b + i);
    broken = _mm256_fmadd_ps(_mm256_sub_ps(x, y), _mm256_setzero_ps(), broken);
    equal = _mm256_sub_epi32(equal, _mm256_castps_si256(_mm256_cmp_ps(x, y, _CMP_EQ_OQ)));
    const __m256 size = _mm256_max_ps(_mm256_andnot_ps(sign, x), _mm256_andnot_ps(sign, y));
    const auto distance = [&](std::size_t at) WEIGHTSTORE_AVX2_FMA {
      return _mm256_andnot_pd(
          wide_sign, _mm256_sub_pd(_mm256_cvtps_pd(_mm_loadu_ps(a + at)), _mm256_cvtps_pd(_mm_loadu_ps(b + at))));
    };
    const __m256d distance0 = distance(i), distance1 = distance(i + 4);
    absolute0 = _mm256_max_pd(distance0, absolute0);
    absolute1 = _mm256_max_pd(distance1, absolute1);
    const __m256d size0 = _mm256_cvtps_pd(_mm256_castps256_ps128(size));
    const __m256d size1 = _mm256_cvtps_pd(_mm256_extractf128_ps(size, 1));
    const __m256d over0 = _mm256_cmp_pd(distance0, _mm256_mul_pd(bar, size0), _CMP_GT_OQ);
    const __m256d over1 = _mm256_cmp_pd(distance1, _mm256_mul_pd(bar, size1), _CMP_GT_OQ);
    if (_mm256_movemask_pd(_mm256_or_pd(over0, over1)) != 0) [[unlikely]] {
      // Where nothing is over, 0 / 0 may be; the mask makes it 0.
      const __m256d share0 = _mm256_and_pd(over0, _mm256_div_pd(distance0, size0));
      const __m256d share1 = _mm256_and_pd(over1, _mm256_div_pd(distance1, size1));
      relative = std::max(relative, largest_of(_mm256_max_pd(share0, share1)));
      bar = _mm256_set1_pd(relative * kBelow);
    }
  }
  alignas(32) float lanes[8];
  alignas(32) std::uint32_t counts[8];
  _mm256_store_ps(lanes, broken);
  _mm256_store_si256(reinterpret_cast<__m256i*>(counts), equal);
  BlockDifferences all = compare_lanes(a, b, i, count, relative);
  all.absolute = std::max(all.absolute, largest_of(_mm256_max_pd(absolute0, absolute1)));
  all.differing += i;
  for (std::size_t j = 0; j < 8; ++j) {
    all.differing -= counts[j];
    all.is_finite = all.is_finite && lanes[j] == 0;
  }
  return all;
}

WEIGHTSTORE_AVX2 BlockDifferences compare_vectors(const double* a, const double* b, std::size_t count,
                                                  double relative) {
  return compare_lanes(a, b, 0, count, relative);
}

#endif

}  // namespace

namespace portable {

BlockDifferences compare_block(const float* a, const float* b, std::size_t count, double relative) {
  return compare_lanes(a, b, 0, count, relative);
}

BlockDifferences compare_block(const double* a, const double* b, std::size_t count, double relative) {
  return compare_lanes(a, b, 0, count, relative);
}

}  // namespace portable

BlockDifferences compare_block(const float* a, const float* b, std::size_t count, double relative) {
#if defined(__x86_64__)
  if (has_avx2()) return compare_vectors(a, b, count, relative);
#endif
  return portable::compare_block(a, b, count, relative);
}

BlockDifferences compare_block(const double* a, const double* b, std::size_t count, double relative) {
#if defined(__x86_64__)
  if (has_avx2()) return compare_vectors(a, b, count, relative);
#endif
  return portable::compare_block(a, b, count, relative);
}

}  // namespace weightstore::kernels
