#include "kernels/blocks/decode_blocks.h"

#if defined(__x86_64__)

#include <immintrin.h>

// Eight numbers at a time. Multiplication and subtraction are two instructions and not a fused one, which would round
// once where the portable kernel rounds twice.

#define WEIGHTSTORE_KERNEL __attribute__((target("avx2,f16c")))

namespace weightstore::kernels {
namespace {

WEIGHTSTORE_KERNEL inline float half_to_float(std::uint16_t bits) { return _cvtsh_ss(bits); }

}  // namespace
}  // namespace weightstore::kernels

#include "kernels/blocks/block_codes.h"
#include "kernels/processor.h"

namespace weightstore::kernels {
namespace {

template <bool kStream>
WEIGHTSTORE_KERNEL inline void store(float* at, __m256 numbers) {
  if constexpr (kStream) {
    _mm256_stream_ps(at, numbers);
  } else {
    _mm256_storeu_ps(at, numbers);
  }
}

template <Rule kRule, bool kStream>
WEIGHTSTORE_KERNEL inline void scale_group(const std::int8_t* codes, int count, float scale, float shift, float* out) {
  const __m256 scales = _mm256_set1_ps(scale);
  const __m256 shifts = _mm256_set1_ps(shift);
  for (int i = 0; i < count; i += 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i));
    __m256 numbers = _mm256_mul_ps(scales, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
    if constexpr (kRule == Rule::kMinus) numbers = _mm256_sub_ps(numbers, shifts);
    if constexpr (kRule == Rule::kPlus) numbers = _mm256_add_ps(numbers, shifts);
    store<kStream>(out + i, numbers);
  }
}

template <class Type, bool kStream>
WEIGHTSTORE_KERNEL void decode(const std::uint8_t* block, std::size_t count, float* out) {
  constexpr int kGroups = Type::kElements / Type::kGroup;
  for (; count > 0; --count, block += Type::kBytes, out += Type::kElements) {
    alignas(32) std::int8_t buffer[Type::kElements];
    alignas(32) float scales[kGroups];
    alignas(32) float shifts[kGroups];
    const std::int8_t* codes = Type::unpack(block, buffer);
    Type::scales(block, scales, shifts);
    for (int group = 0; group < kGroups; ++group) {
      const float shift = Type::kRule == Rule::kScale ? 0.0f : shifts[group];
      scale_group<Type::kRule, kStream>(codes + Type::kGroup * group, Type::kGroup, scales[group], shift,
                                        out + Type::kGroup * group);
    }
  }
}

template <class Type>
struct Vector {
  static void run(const std::byte* blocks, std::size_t count, float* out, bool stream) {
    const auto* block = reinterpret_cast<const std::uint8_t*>(blocks);
    if (stream && reinterpret_cast<std::uintptr_t>(out) % 32 == 0) {
      decode<Type, true>(block, count, out);
    } else {
      decode<Type, false>(block, count, out);
    }
  }
};

}  // namespace

DecodeBlocks vector_decoder(DType dtype) { return has_avx2_and_f16c() ? decoder_for<Vector>(dtype) : nullptr; }

}  // namespace weightstore::kernels

#else

namespace weightstore::kernels {

DecodeBlocks vector_decoder(DType) { return nullptr; }

}  // namespace weightstore::kernels

#endif
