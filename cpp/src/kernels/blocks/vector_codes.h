// The functions of portable_codes.h with AVX2 and F16C: 32 codes at a time.

#include <immintrin.h>

#include <array>
#include <cstdint>
#include <cstring>

#define WEIGHTSTORE_KERNEL __attribute__((target("avx2,f16c")))

namespace weightstore::kernels {
namespace {

using CodeTable = std::array<std::int8_t, 16>;

WEIGHTSTORE_KERNEL inline float half_to_float(std::uint16_t bits) { return _cvtsh_ss(bits); }

WEIGHTSTORE_KERNEL inline __m256i load_codes(const void* at) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}

WEIGHTSTORE_KERNEL inline void store_codes(std::int8_t* at, __m256i codes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), codes);
}

// There are no shifts of bytes: bits that come from a neighbour are masked away, so that `mask` has at most 8 - shift
// bits.
WEIGHTSTORE_KERNEL inline __m256i bits_of_bytes(__m256i bytes, int shift, int mask) {
  return _mm256_and_si256(_mm256_srl_epi16(bytes, _mm_cvtsi32_si128(shift)), _mm256_set1_epi8(static_cast<char>(mask)));
}

template <int kCount>
WEIGHTSTORE_KERNEL inline void take_bits(const std::uint8_t* in, int shift, int mask, std::int8_t* out) {
  static_assert(kCount % 32 == 0);
  for (int i = 0; i < kCount; i += 32) store_codes(out + i, bits_of_bytes(load_codes(in + i), shift, mask));
}

template <int kGroup>
WEIGHTSTORE_KERNEL inline void take_nibbles(const std::uint8_t* in, std::int8_t* out) {
  static_assert(kGroup == 8 || kGroup == 16);
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
  const __m128i high = _mm_srli_epi16(low, 4);
  const __m256i both = kGroup == 16 ? _mm256_set_m128i(high, low)
                                    : _mm256_set_m128i(_mm_unpackhi_epi64(low, high), _mm_unpacklo_epi64(low, high));
  store_codes(out, _mm256_and_si256(both, _mm256_set1_epi8(15)));
}

template <int kCount>
WEIGHTSTORE_KERNEL inline void add_to_codes(std::int8_t* codes, int number) {
  const __m256i numbers = _mm256_set1_epi8(static_cast<char>(number));
  for (int i = 0; i < kCount; i += 32) store_codes(codes + i, _mm256_add_epi8(load_codes(codes + i), numbers));
}

WEIGHTSTORE_KERNEL inline void add_fifth_bits(const std::uint8_t* word, std::int8_t* codes) {
  std::int32_t bits;
  std::memcpy(&bits, word, sizeof bits);
  // Byte i of the vector is byte i / 8 of the word, of which bit i % 8 counts.
  const __m256i places = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i masks = _mm256_set1_epi64x(static_cast<std::int64_t>(0x8040201008040201));
  const __m256i bytes = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), places), masks);
  const __m256i fifth = _mm256_and_si256(_mm256_cmpeq_epi8(bytes, masks), _mm256_set1_epi8(16));
  store_codes(codes, _mm256_or_si256(load_codes(codes), fifth));
}

WEIGHTSTORE_KERNEL inline void add_high_bits(const std::uint8_t* in, int shift, int mask, int to, std::int8_t* codes) {
  const __m256i bits = _mm256_sll_epi16(bits_of_bytes(load_codes(in), shift, mask), _mm_cvtsi32_si128(to));
  store_codes(codes, _mm256_or_si256(load_codes(codes), bits));
}

template <int kCount>
WEIGHTSTORE_KERNEL inline void look_up(const CodeTable& table, std::int8_t* codes) {
  const __m256i numbers = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table.data())));
  for (int i = 0; i < kCount; i += 32) store_codes(codes + i, _mm256_shuffle_epi8(numbers, load_codes(codes + i)));
}

// Bytes as numbers of 16 bits.
WEIGHTSTORE_KERNEL inline __m256i digits_of(__m256i bytes, int power) {
  const __m256i rest =
      _mm256_and_si256(_mm256_mullo_epi16(bytes, _mm256_set1_epi16(static_cast<short>(power))), _mm256_set1_epi16(255));
  const __m256i digits = _mm256_srli_epi16(_mm256_mullo_epi16(rest, _mm256_set1_epi16(3)), 8);
  return _mm256_sub_epi16(digits, _mm256_set1_epi16(1));
}

template <int kCount, int kDigits>
WEIGHTSTORE_KERNEL inline void take_digits(const std::uint8_t* in, std::int8_t* codes) {
  constexpr int kStep = kCount < 16 ? kCount : 16;
  static_assert(kCount % 16 == 0 || kCount == 4);
  for (int i = 0; i < kCount; i += kStep) {
    __m128i bytes = _mm_setzero_si128();
    std::memcpy(&bytes, in + i, kStep);
    const __m256i wide = _mm256_cvtepu8_epi16(bytes);
    int power = 1;
    for (int digit = 0; digit < kDigits; ++digit, power *= 3) {
      const __m256i digits = digits_of(wide, power);
      const __m128i narrow = _mm_packs_epi16(_mm256_castsi256_si128(digits), _mm256_extracti128_si256(digits, 1));
      std::memcpy(codes + kCount * digit + i, &narrow, kStep);
    }
  }
}

}  // namespace
}  // namespace weightstore::kernels
