#include "kernels/cast_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include "kernels/cast_table.h"
#include "kernels/processor.h"

// Sixteen numbers at a time, as the bits of F32 in two registers between load and store. The rest of an array, and what
// comes before an aligned address, goes through the portable kernel, which gives the same bits.

#define WEIGHTSTORE_AVX2 __attribute__((target("avx2,f16c")))

namespace weightstore::kernels {
namespace {

constexpr std::size_t kStep = 16;
// Arrays beyond this go around the caches: they would not stay in them, and each line would be read before it is
// written.
constexpr std::size_t kStreamBytes = std::size_t{256} << 10;

struct Sixteen {
  __m256i low;
  __m256i high;
};

WEIGHTSTORE_AVX2 inline __m256i load(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

WEIGHTSTORE_AVX2 inline __m256i narrow_doubles(const std::byte* at) {
  const __m128 low = _mm256_cvtpd_ps(_mm256_loadu_pd(reinterpret_cast<const double*>(at)));
  const __m128 high = _mm256_cvtpd_ps(_mm256_loadu_pd(reinterpret_cast<const double*>(at + 32)));
  return _mm256_castps_si256(_mm256_set_m128(high, low));
}

template <DType kType>
WEIGHTSTORE_AVX2 inline Sixteen load_sixteen(const std::byte* at) {
  if constexpr (kType == DType::kF32) {
    return {load(at), load(at + 32)};
  } else if constexpr (kType == DType::kF64) {
    return {narrow_doubles(at), narrow_doubles(at + 64)};
  } else {
    const __m256i halves = load(at);
    const __m128i low = _mm256_castsi256_si128(halves);
    const __m128i high = _mm256_extracti128_si256(halves, 1);
    if constexpr (kType == DType::kF16) {
      return {_mm256_castps_si256(_mm256_cvtph_ps(low)), _mm256_castps_si256(_mm256_cvtph_ps(high))};
    } else {
      return {_mm256_slli_epi32(_mm256_cvtepu16_epi32(low), 16), _mm256_slli_epi32(_mm256_cvtepu16_epi32(high), 16)};
    }
  }
}

// To the upper half of each lane, rounded to nearest even, in the lower half of each lane.
WEIGHTSTORE_AVX2 inline __m256i round_to_bf16(__m256i bits) {
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i tie = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(tie, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x0040));
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fff'ffff));
  const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f80'0000));
  return _mm256_blendv_epi8(rounded, quiet, is_nan);
}

template <bool kStream>
WEIGHTSTORE_AVX2 inline void store(std::byte* at, __m256i value) {
  if constexpr (kStream) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(at), value);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), value);
  }
}

template <bool kStream>
WEIGHTSTORE_AVX2 inline void store_doubles(std::byte* at, __m256i bits) {
  const __m256 floats = _mm256_castsi256_ps(bits);
  store<kStream>(at, _mm256_castpd_si256(_mm256_cvtps_pd(_mm256_castps256_ps128(floats))));
  store<kStream>(at + 32, _mm256_castpd_si256(_mm256_cvtps_pd(_mm256_extractf128_ps(floats, 1))));
}

template <DType kType, bool kStream>
WEIGHTSTORE_AVX2 inline void store_sixteen(std::byte* at, Sixteen values) {
  if constexpr (kType == DType::kF32) {
    store<kStream>(at, values.low);
    store<kStream>(at + 32, values.high);
  } else if constexpr (kType == DType::kF64) {
    store_doubles<kStream>(at, values.low);
    store_doubles<kStream>(at + 64, values.high);
  } else if constexpr (kType == DType::kF16) {
    const __m128i low = _mm256_cvtps_ph(_mm256_castsi256_ps(values.low), _MM_FROUND_TO_NEAREST_INT);
    const __m128i high = _mm256_cvtps_ph(_mm256_castsi256_ps(values.high), _MM_FROUND_TO_NEAREST_INT);
    store<kStream>(at, _mm256_set_m128i(high, low));
  } else {
    const __m256i packed = _mm256_packus_epi32(round_to_bf16(values.low), round_to_bf16(values.high));
    store<kStream>(at, _mm256_permute4x64_epi64(packed, 0b11'01'10'00));
  }
}

template <DType kFrom, DType kTo, bool kStream>
WEIGHTSTORE_AVX2 void convert_steps(const std::byte* in, std::byte* out, std::size_t steps) {
  for (std::size_t i = 0; i < steps; ++i) {
    store_sixteen<kTo, kStream>(out + i * kStep * kBytes<kTo>, load_sixteen<kFrom>(in + i * kStep * kBytes<kFrom>));
  }
}

template <DType kFrom, DType kTo>
struct Vector {
  static void run(const std::byte* in, std::byte* out, std::size_t count) {
    const CastKernel portable = portable_cast(kFrom, kTo);
    const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(out) % 32;
    const bool stream = count * kBytes<kTo> >= kStreamBytes && misaligned % kBytes<kTo> == 0;
    const auto advance = [&](std::size_t done) {
      in += done * kBytes<kFrom>;
      out += done * kBytes<kTo>;
      count -= done;
    };
    if (stream && misaligned != 0) {
      const std::size_t before = (32 - misaligned) / kBytes<kTo>;
      portable(in, out, before);
      advance(before);
    }
    const std::size_t steps = count / kStep;
    if (stream) {
      convert_steps<kFrom, kTo, true>(in, out, steps);
      _mm_sfence();
    } else {
      convert_steps<kFrom, kTo, false>(in, out, steps);
    }
    advance(steps * kStep);
    portable(in, out, count);
  }
};

}  // namespace

CastKernel vector_cast(DType from, DType to) { return has_avx2_and_f16c() ? kernel_for<Vector>(from, to) : nullptr; }

}  // namespace weightstore::kernels

#else

namespace weightstore::kernels {

CastKernel vector_cast(DType, DType) { return nullptr; }

}  // namespace weightstore::kernels

#endif
