#include "kernels/histogram_bins.h"

#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define WEIGHTSTORE_AVX2 __attribute__((target("avx2")))
#define WEIGHTSTORE_AVX2_FMA __attribute__((target("avx2,fma")))
#endif

namespace weightstore::kernels {
namespace {

constexpr std::size_t kStep = 16;

template <class T>
[[gnu::always_inline]] inline std::int32_t bin_of(const T* numbers, std::size_t i, double low, double scale,
                                                  std::int32_t none) {
  T number;
  std::memcpy(&number, reinterpret_cast<const std::byte*>(numbers) + i * sizeof number, sizeof number);
  const double bin = (static_cast<double>(number) - low) * scale;
  return bin > -1 && bin < none ? static_cast<std::int32_t>(bin) : none;
}

template <class T>
void bins_portable(const T* numbers, std::size_t begin, std::size_t count, double low, double scale, std::int32_t none,
                   std::int32_t* bins) {
  for (std::size_t i = begin; i < count; ++i) bins[i] = bin_of(numbers, i, low, scale, none);
}

#if defined(__x86_64__)

bool has_avx2() {
  static const bool found = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return found;
}

// What does not fit an int, such as a NaN, becomes its smallest number, which is large without its sign.
WEIGHTSTORE_AVX2 inline __m256i eight_bins(const float* numbers, __m256d low, __m256d scale, __m256i none) {
  const auto bins = [&](const float* four) WEIGHTSTORE_AVX2 {
    const __m256d wide = _mm256_cvtps_pd(_mm_loadu_ps(four));
    return _mm256_cvttpd_epi32(_mm256_mul_pd(_mm256_sub_pd(wide, low), scale));
  };
  return _mm256_min_epu32(_mm256_set_m128i(bins(numbers + 4), bins(numbers)), none);
}

WEIGHTSTORE_AVX2 std::size_t bin_vectors(const float* numbers, std::size_t count, double low, double scale,
                                         std::int32_t none, std::int32_t* bins) {
  const __m256d first = _mm256_set1_pd(low), factor = _mm256_set1_pd(scale);
  const __m256i most = _mm256_set1_epi32(none);
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bins + i), eight_bins(numbers + i, first, factor, most));
  }
  return i;
}

WEIGHTSTORE_AVX2 inline void store_pairs(__m256i some, __m256i others, __m256i weights, std::uint32_t* pairs) {
  const __m256i both = _mm256_or_si256(some, _mm256_slli_epi32(others, 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(pairs), _mm256_madd_epi16(both, weights));
}

// Bins found with floats, which are the right ones unless a number is closer to a border than floats can tell: then
// with doubles. number * factor + offset is less than three units of 2^-24 * (bins + |low * scale|) from the place of
// the number: the factor, the offset and the result are rounded. `margin` is more.
WEIGHTSTORE_AVX2_FMA std::size_t pair_vectors(const float* numbers, std::size_t count, double low, double scale,
                                              std::int32_t none, std::uint32_t* pairs) {
  const __m256d first = _mm256_set1_pd(low), wide_factor = _mm256_set1_pd(scale);
  const __m256i most = _mm256_set1_epi32(none);
  const __m256i weights = _mm256_set1_epi32((1 << 16) | (none + 1));
  const double margin = (std::fabs(low * scale) + none) * 0x1p-22;
  const bool floats_tell = margin < 1.0 / 64 && scale > 0x1p-100 && scale < 0x1p100;
  const __m256 factor = _mm256_set1_ps(static_cast<float>(scale));
  const __m256 offset = _mm256_set1_ps(static_cast<float>(-low * scale - margin));
  const __m256 upper_offset = _mm256_set1_ps(static_cast<float>(-low * scale + margin));
  std::size_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    if (floats_tell) {
      const __m256 x = _mm256_loadu_ps(numbers + i), y = _mm256_loadu_ps(numbers + i + 8);
      const __m256i some = _mm256_cvttps_epi32(_mm256_fmadd_ps(x, factor, offset));
      const __m256i others = _mm256_cvttps_epi32(_mm256_fmadd_ps(y, factor, offset));
      const __m256i differ =
          _mm256_or_si256(_mm256_xor_si256(some, _mm256_cvttps_epi32(_mm256_fmadd_ps(x, factor, upper_offset))),
                          _mm256_xor_si256(others, _mm256_cvttps_epi32(_mm256_fmadd_ps(y, factor, upper_offset))));
      if (_mm256_testz_si256(differ, differ) != 0) [[likely]] {
        store_pairs(_mm256_min_epu32(some, most), _mm256_min_epu32(others, most), weights, pairs + i / 2);
        continue;
      }
    }
    store_pairs(eight_bins(numbers + i, first, wide_factor, most),
                eight_bins(numbers + i + 8, first, wide_factor, most), weights, pairs + i / 2);
  }
  return i;
}

#endif

}  // namespace

namespace portable {

void find_bins(const float* numbers, std::size_t count, double low, double scale, std::int32_t none,
               std::int32_t* bins) {
  bins_portable(numbers, 0, count, low, scale, none, bins);
}

std::size_t find_pairs(const float* numbers, std::size_t count, double low, double scale, std::int32_t none,
                       std::uint32_t* pairs) {
  std::size_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    for (std::size_t j = 0; j < 8; ++j) {
      const std::int32_t bin = bin_of(numbers, i + j, low, scale, none);
      const std::int32_t other = bin_of(numbers, i + 8 + j, low, scale, none);
      pairs[i / 2 + j] = static_cast<std::uint32_t>(bin * (none + 1) + other);
    }
  }
  return i;
}

}  // namespace portable

void find_bins(const float* numbers, std::size_t count, double low, double scale, std::int32_t none,
               std::int32_t* bins) {
  std::size_t done = 0;
#if defined(__x86_64__)
  if (has_avx2()) done = bin_vectors(numbers, count, low, scale, none, bins);
#endif
  bins_portable(numbers, done, count, low, scale, none, bins);
}

void find_bins(const double* numbers, std::size_t count, double low, double scale, std::int32_t none,
               std::int32_t* bins) {
  bins_portable(numbers, 0, count, low, scale, none, bins);
}

std::size_t find_pairs(const float* numbers, std::size_t count, double low, double scale, std::int32_t none,
                       std::uint32_t* pairs) {
#if defined(__x86_64__)
  if (has_avx2()) return pair_vectors(numbers, count, low, scale, none, pairs);
#endif
  return portable::find_pairs(numbers, count, low, scale, none, pairs);
}

}  // namespace weightstore::kernels
