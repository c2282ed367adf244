#include "kernels/statistics_block.h"

#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weightstore::kernels {
namespace {

constexpr std::size_t kLanes = 16;

template <class T>
T number_at(const T* numbers, std::size_t i) {
  T number;
  std::memcpy(&number, reinterpret_cast<const std::byte*>(numbers) + i * sizeof number, sizeof number);
  return number;
}

// Number i counts for lane i % kLanes.
template <class T>
struct Lanes {
  Lanes() {
    for (std::size_t j = 0; j < kLanes; ++j) {
      min[j] = std::numeric_limits<T>::infinity();
      max[j] = -std::numeric_limits<T>::infinity();
    }
  }

  alignas(64) T min[kLanes];
  alignas(64) T max[kLanes];
  alignas(64) T zeros[kLanes] = {};  // a lane of a block has so few numbers that T counts them
  alignas(64) double sum[kLanes] = {};
  alignas(64) double squares[kLanes] = {};
};

template <class T>
[[gnu::always_inline]] inline void add_to_lane(T number, std::size_t j, Lanes<T>& lanes) {
  const double wide = static_cast<double>(number);
  lanes.min[j] = number < lanes.min[j] ? number : lanes.min[j];
  lanes.max[j] = number > lanes.max[j] ? number : lanes.max[j];
  lanes.zeros[j] += number == 0 ? T{1} : T{0};
  lanes.sum[j] += wide;
  lanes.squares[j] += wide * wide;
}

// A compiler makes vectors of the inner loop. `begin` is a multiple of kLanes.
template <class T>
[[gnu::always_inline]] inline void add_numbers(const T* numbers, std::size_t begin, std::size_t count,
                                               Lanes<T>& lanes) {
  Lanes<T> local = lanes;
  std::size_t i = begin;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) add_to_lane(number_at(numbers, i + j), j, local);
  }
  for (std::size_t j = 0; i + j < count; ++j) add_to_lane(number_at(numbers, i + j), j, local);
  lanes = local;
}

template <class T>
[[gnu::always_inline]] inline DistanceSums add_distances(const T* numbers, std::size_t count, double shift) {
  double sum[kLanes] = {}, squares[kLanes] = {};
  const auto add = [&](std::size_t i, std::size_t j) {
    const double distance = static_cast<double>(number_at(numbers, i)) - shift;
    sum[j] += distance;
    squares[j] += distance * distance;
  };
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::size_t j = 0; j < kLanes; ++j) add(i + j, j);
  }
  for (std::size_t j = 0; i + j < count; ++j) add(i + j, j);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) {
      sum[j] += sum[j + half];
      squares[j] += squares[j + half];
    }
  }
  return {sum[0], squares[0]};
}

template <class T>
[[gnu::always_inline]] inline BlockSums total(Lanes<T>& lanes) {
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) {
      lanes.min[j] = lanes.min[j + half] < lanes.min[j] ? lanes.min[j + half] : lanes.min[j];
      lanes.max[j] = lanes.max[j + half] > lanes.max[j] ? lanes.max[j + half] : lanes.max[j];
      lanes.zeros[j] += lanes.zeros[j + half];
      lanes.sum[j] += lanes.sum[j + half];
      lanes.squares[j] += lanes.squares[j + half];
    }
  }
  return {static_cast<double>(lanes.min[0]), static_cast<double>(lanes.max[0]), lanes.sum[0], lanes.squares[0],
          static_cast<std::uint64_t>(lanes.zeros[0])};
}

template <class T>
[[gnu::always_inline]] inline BlockSums sum_lanes(const T* numbers, std::size_t count) {
  Lanes<T> lanes;
  add_numbers(numbers, 0, count, lanes);
  return total(lanes);
}

#if defined(__x86_64__)

#define WEIGHTSTORE_AVX2 __attribute__((target("avx2")))
#define WEIGHTSTORE_AVX2_FMA __attribute__((target("avx2,fma")))

bool has_avx2() {
  static const bool found = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return found;
}

// As many numbers as fill all lanes. The square of a float is exact as a double, so that an fma rounds as an addition
// does.
WEIGHTSTORE_AVX2_FMA std::size_t add_vectors(const float* numbers, std::size_t count, Lanes<float>& lanes) {
  __m256 min[2], max[2], zeros[2];
  __m256d sum[4], squares[4];
#pragma GCC unroll 2
  for (int k = 0; k < 2; ++k) {
    min[k] = _mm256_load_ps(lanes.min + 8 * k);
    max[k] = _mm256_load_ps(lanes.max + 8 * k);
    zeros[k] = _mm256_setzero_ps();
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) sum[k] = squares[k] = _mm256_setzero_pd();
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k) {
      const __m256 values = _mm256_loadu_ps(numbers + i + 8 * k);
      min[k] = _mm256_min_ps(values, min[k]);
      max[k] = _mm256_max_ps(values, max[k]);
      const __m256 is_zero = _mm256_cmp_ps(values, _mm256_setzero_ps(), _CMP_EQ_OQ);
      zeros[k] = _mm256_castsi256_ps(_mm256_sub_epi32(_mm256_castps_si256(zeros[k]), _mm256_castps_si256(is_zero)));
    }
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const __m256d wide = _mm256_cvtps_pd(_mm_loadu_ps(numbers + i + 4 * k));
      sum[k] = _mm256_add_pd(sum[k], wide);
      squares[k] = _mm256_fmadd_pd(wide, wide, squares[k]);
    }
  }
#pragma GCC unroll 2
  for (int k = 0; k < 2; ++k) {
    _mm256_store_ps(lanes.min + 8 * k, min[k]);
    _mm256_store_ps(lanes.max + 8 * k, max[k]);
    _mm256_store_ps(lanes.zeros + 8 * k, _mm256_cvtepi32_ps(_mm256_castps_si256(zeros[k])));
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    _mm256_store_pd(lanes.sum + 4 * k, sum[k]);
    _mm256_store_pd(lanes.squares + 4 * k, squares[k]);
  }
  return i;
}

WEIGHTSTORE_AVX2_FMA BlockSums sum_vectors(const float* numbers, std::size_t count) {
  Lanes<float> lanes;
  const std::size_t done = add_vectors(numbers, count, lanes);
  add_numbers(numbers, done, count, lanes);
  return total(lanes);
}

WEIGHTSTORE_AVX2 BlockSums sum_vectors(const double* numbers, std::size_t count) { return sum_lanes(numbers, count); }

WEIGHTSTORE_AVX2 DistanceSums distance_vectors(const float* numbers, std::size_t count, double shift) {
  return add_distances(numbers, count, shift);
}

WEIGHTSTORE_AVX2 DistanceSums distance_vectors(const double* numbers, std::size_t count, double shift) {
  return add_distances(numbers, count, shift);
}

#endif

}  // namespace

namespace portable {

BlockSums sum_block(const float* numbers, std::size_t count) { return sum_lanes(numbers, count); }
BlockSums sum_block(const double* numbers, std::size_t count) { return sum_lanes(numbers, count); }
DistanceSums sum_distances(const float* numbers, std::size_t count, double shift) {
  return add_distances(numbers, count, shift);
}
DistanceSums sum_distances(const double* numbers, std::size_t count, double shift) {
  return add_distances(numbers, count, shift);
}

}  // namespace portable

#if defined(__x86_64__)

BlockSums sum_block(const float* numbers, std::size_t count) {
  return has_avx2() ? sum_vectors(numbers, count) : portable::sum_block(numbers, count);
}

BlockSums sum_block(const double* numbers, std::size_t count) {
  return has_avx2() ? sum_vectors(numbers, count) : portable::sum_block(numbers, count);
}

DistanceSums sum_distances(const float* numbers, std::size_t count, double shift) {
  return has_avx2() ? distance_vectors(numbers, count, shift) : add_distances(numbers, count, shift);
}

DistanceSums sum_distances(const double* numbers, std::size_t count, double shift) {
  return has_avx2() ? distance_vectors(numbers, count, shift) : add_distances(numbers, count, shift);
}

#else

BlockSums sum_block(const float* numbers, std::size_t count) { return portable::sum_block(numbers, count); }
BlockSums sum_block(const double* numbers, std::size_t count) { return portable::sum_block(numbers, count); }
DistanceSums sum_distances(const float* numbers, std::size_t count, double shift) {
  return add_distances(numbers, count, shift);
}
DistanceSums sum_distances(const double* numbers, std::size_t count, double shift) {
  return add_distances(numbers, count, shift);
}

#endif

}  // namespace weightstore::kernels
