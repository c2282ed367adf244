#include "kernels/blocks/decode_blocks.h"

#if defined(__x86_64__)

#include "kernels/blocks/vector_codes.h"
// After the functions that it uses.
#include "kernels/blocks/block_types.h"
#include "kernels/processor.h"

// Eight numbers at a time. Multiplication and subtraction are two instructions and not a fused one, which would round
// once where the portable kernel rounds twice.

namespace weightstore::kernels {
namespace {

template <Rule kRule, int kCount>
WEIGHTSTORE_KERNEL inline void scale_group(const std::int8_t* codes, const float* scale, const float* shift,
                                           float* out) {
  const __m256 scales = _mm256_broadcast_ss(scale);
  for (int i = 0; i < kCount; i += 8) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i));
    __m256 numbers = _mm256_mul_ps(scales, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
    if constexpr (kRule == Rule::kMinus) numbers = _mm256_sub_ps(numbers, _mm256_broadcast_ss(shift));
    if constexpr (kRule == Rule::kPlus) numbers = _mm256_add_ps(numbers, _mm256_broadcast_ss(shift));
    _mm256_storeu_ps(out + i, numbers);
  }
}

template <class Type>
WEIGHTSTORE_KERNEL void decode(const std::uint8_t* block, std::size_t count, float* out) {
  constexpr int kGroups = Type::kElements / Type::kGroup;
  for (; count > 0; --count, block += Type::kBytes, out += Type::kElements) {
    alignas(32) std::int8_t buffer[Type::kElements];
    alignas(32) float scales[kGroups];
    alignas(32) float shifts[kGroups];
    const std::int8_t* codes = Type::unpack(block, buffer);
    Type::scales(block, scales, shifts);
    for (int group = 0; group < kGroups; ++group) {
      scale_group<Type::kRule, Type::kGroup>(codes + Type::kGroup * group, scales + group, shifts + group,
                                             out + Type::kGroup * group);
    }
  }
}

template <class Type>
struct Vector {
  static void run(const std::byte* blocks, std::size_t count, float* out) {
    decode<Type>(reinterpret_cast<const std::uint8_t*>(blocks), count, out);
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
