#include "kernels/scale_codes.h"

#include <algorithm>

#include "kernels/processor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weightstore::kernels {
namespace {

void scale_run(const CodeTable& table, const std::uint8_t* codes, std::size_t count, float scale, float* out) {
  if (table.kind == CodeKind::kInteger) {  // compilers make vectors of this, but not of a table
    for (std::size_t i = 0; i < count; ++i) out[i] = scale * static_cast<float>(static_cast<std::int8_t>(codes[i]));
  } else {
    for (std::size_t i = 0; i < count; ++i) out[i] = scale * table.values[codes[i]];
  }
}

// Goes over blocks: how many codes have the next scale.
class Blocks {
 public:
  Blocks(std::size_t count, const BlockScales& scales)
      : scale_(scales.scales), block_(scales.block), in_block_(scales.block - scales.offset), count_(count) {}

  bool next() {
    begin += length;
    length = static_cast<std::size_t>(std::min<std::uint64_t>(count_ - begin, in_block_));
    in_block_ = block_;
    if (length == 0) return false;
    scale = *scale_++;
    return true;
  }

  std::size_t begin = 0;
  std::size_t length = 0;
  float scale = 0;

 private:
  const float* scale_;
  const std::uint64_t block_;
  std::uint64_t in_block_;
  const std::size_t count_;
};

#if defined(__x86_64__)

#define WEIGHTSTORE_AVX2 __attribute__((target("avx2,f16c")))

// The values of eight codes.
template <CodeKind kKind>
WEIGHTSTORE_AVX2 inline __m256 eight_values(const std::uint8_t* codes) {
  const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  if constexpr (kKind == CodeKind::kInteger) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight));
  } else if constexpr (kKind == CodeKind::kE2M1) {
    const __m256i wide = _mm256_cvtepu8_epi32(eight);
    const __m256 magnitudes = _mm256_permutevar8x32_ps(_mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6), wide);
    const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(wide, _mm256_set1_epi32(8)), 28);
    return _mm256_xor_ps(magnitudes, _mm256_castsi256_ps(sign));
  } else if constexpr (kKind == CodeKind::kE5M2) {
    return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), eight));  // the upper byte of an F16
  } else {
    // The exponent and the mantissa of E4M3 in the places of those of F16, whose exponents are 8 less. The code that
    // would be 480 is NaN.
    const __m128i wide = _mm_cvtepu8_epi16(eight);
    const __m128i magnitude = _mm_and_si128(wide, _mm_set1_epi16(0x7f));
    const __m128i sign = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x80)), 8);
    const __m128i number = _mm_or_si128(_mm_slli_epi16(magnitude, 7), sign);
    const __m128i is_nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f));
    const __m128i half = _mm_blendv_epi8(number, _mm_set1_epi16(0x7e00), is_nan);
    return _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(0x1p8f));
  }
}

template <CodeKind kKind, bool kStream>
WEIGHTSTORE_AVX2 inline std::size_t scale_eights(const std::uint8_t* codes, std::size_t count, float scale,
                                                 float* out) {
  const __m256 factor = _mm256_set1_ps(scale);
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 numbers = _mm256_mul_ps(factor, eight_values<kKind>(codes + i));
    if constexpr (kStream) {
      _mm256_stream_ps(out + i, numbers);
    } else {
      _mm256_storeu_ps(out + i, numbers);
    }
  }
  return i;
}

template <CodeKind kKind, bool kStream>
WEIGHTSTORE_AVX2 void scale_vectors(const CodeTable& table, const std::uint8_t* codes, std::size_t count,
                                    const BlockScales& scales, float* out) {
  for (Blocks blocks(count, scales); blocks.next();) {
    const std::uint8_t* from = codes + blocks.begin;
    float* to = out + blocks.begin;
    const std::size_t done = scale_eights<kKind, kStream>(from, blocks.length, blocks.scale, to);
    if (done != blocks.length) scale_run(table, from + done, blocks.length - done, blocks.scale, to + done);
  }
}

template <CodeKind kKind>
void scale_kind(const CodeTable& table, const std::uint8_t* codes, std::size_t count, const BlockScales& scales,
                float* out, bool stream) {
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(out) % 32 == 0;
  const bool one_block = count <= scales.block - scales.offset;
  if (stream && is_aligned && (one_block || (scales.block % 8 == 0 && scales.offset % 8 == 0))) {
    scale_vectors<kKind, true>(table, codes, count, scales, out);
  } else {
    scale_vectors<kKind, false>(table, codes, count, scales, out);
  }
}

bool has_vectors() { return has_avx2_and_f16c(); }

#else

template <CodeKind kKind>
void scale_kind(const CodeTable&, const std::uint8_t*, std::size_t, const BlockScales&, float*, bool) {}

bool has_vectors() { return false; }

#endif

}  // namespace

void scale_codes(const CodeTable& table, const std::uint8_t* codes, std::size_t count, const BlockScales& scales,
                 float* out, bool stream) {
  if (!has_vectors()) {
    for (Blocks blocks(count, scales); blocks.next();) {
      scale_run(table, codes + blocks.begin, blocks.length, blocks.scale, out + blocks.begin);
    }
    return;
  }
  switch (table.kind) {
    case CodeKind::kInteger:
      return scale_kind<CodeKind::kInteger>(table, codes, count, scales, out, stream);
    case CodeKind::kE4M3:
      return scale_kind<CodeKind::kE4M3>(table, codes, count, scales, out, stream);
    case CodeKind::kE5M2:
      return scale_kind<CodeKind::kE5M2>(table, codes, count, scales, out, stream);
    case CodeKind::kE2M1:
      return scale_kind<CodeKind::kE2M1>(table, codes, count, scales, out, stream);
  }
}

void end_stream() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace weightstore::kernels
