#include "kernels/quantize_runs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace weightstore::kernels {
namespace {

// On x86-64 the loops below are compiled twice: for every processor, and for those with AVX2. Neither fuses a
// multiplication with an addition, so that both round alike.
#if defined(__x86_64__)
#define WEIGHTSTORE_AVX2 __attribute__((target("avx2")))
bool has_avx2() {
  static const bool usable = __builtin_cpu_supports("avx2");
  return usable;
}
#else
#define WEIGHTSTORE_AVX2
bool has_avx2() { return false; }
#endif
#define WEIGHTSTORE_INLINE inline __attribute__((always_inline))
#define WEIGHTSTORE_INLINE_LAMBDA __attribute__((always_inline))

// Loops over `runs` runs of `length` numbers each. The usual lengths are constants, so that the compiler can unroll.
#define WEIGHTSTORE_FOR_LENGTH(function, length, ...) \
  switch (length) {                                   \
    case 8:                                           \
      return function<8>(__VA_ARGS__);                \
    case 16:                                          \
      return function<16>(__VA_ARGS__);               \
    case 32:                                          \
      return function<32>(__VA_ARGS__);               \
    case 64:                                          \
      return function<64>(__VA_ARGS__);               \
    default:                                          \
      return function<0>(__VA_ARGS__);                \
  }

template <std::size_t kLength>
WEIGHTSTORE_INLINE void raise_runs(const float* in, std::size_t length, std::size_t runs, std::uint32_t* peaks) {
  if constexpr (kLength != 0) length = kLength;
  for (std::size_t run = 0; run < runs; ++run, in += length) {
    std::uint32_t peak = 0;
    for (std::size_t i = 0; i < length; ++i) peak = std::max(peak, std::bit_cast<std::uint32_t>(in[i]) & 0x7fff'ffffu);
    peaks[run] = std::max(peaks[run], peak);
  }
}

WEIGHTSTORE_INLINE void raise_by_length(const float* in, std::size_t length, std::size_t runs, std::uint32_t* peaks){
    WEIGHTSTORE_FOR_LENGTH(raise_runs, length, in, length, runs, peaks)}

WEIGHTSTORE_AVX2 void raise_avx2(const float* in, std::size_t length, std::size_t runs, std::uint32_t* peaks) {
  raise_by_length(in, length, runs, peaks);
}

// Half away from zero, as Rust's f32::round(), for magnitudes below 2^22. What is added is the largest number below a
// half: the sum of it and the number below a half does not round up to one.
WEIGHTSTORE_INLINE int round_away(float x) { return static_cast<int>(x + std::copysign(0x1.fffffep-2f, x)); }

// Half to even, for magnitudes below 2^22: a sum this large keeps no fraction.
WEIGHTSTORE_INLINE int round_even(float x) { return static_cast<int>((x + 12'582'912.0f) - 12'582'912.0f); }

// The ends of the range are whole numbers, so that it does not matter whether a number is rounded or limited first.
template <Rounding kRounding>
WEIGHTSTORE_INLINE void encode_as(const float* in, std::size_t count, float divisor, const CodeRange& range,
                                  std::int8_t* out) {
  const float inverse = 1.0f / divisor;
  const float least = range.least;
  const float most = range.most;
  for (std::size_t i = 0; i < count; ++i) {
    float scaled = kRounding == Rounding::kAwayOfProduct ? in[i] * inverse : in[i] / divisor;
    // The inverse of a subnormal scale may be infinite, and zero times infinity is no number. Rust makes it a zero.
    scaled = scaled == scaled ? scaled : 0.0f;
    scaled = scaled < least ? least : scaled;
    scaled = scaled > most ? most : scaled;
    out[i] = static_cast<std::int8_t>(kRounding == Rounding::kEvenOfQuotient ? round_even(scaled) : round_away(scaled));
  }
}

template <std::size_t kLength>
WEIGHTSTORE_INLINE void encode_of_length(Rounding rounding, const Runs& runs, const CodeRange& range,
                                         std::int8_t* out) {
  const std::size_t length = kLength != 0 ? kLength : runs.length;
  const auto encode = [&]<Rounding kRounding>() WEIGHTSTORE_INLINE_LAMBDA {
    for (std::size_t i = 0; i < runs.count; ++i) {
      encode_as<kRounding>(runs.in + i * length, length, runs.divisors[i], range, out + i * length);
    }
  };
  switch (rounding) {
    case Rounding::kAwayOfQuotient:
      return encode.template operator()<Rounding::kAwayOfQuotient>();
    case Rounding::kAwayOfProduct:
      return encode.template operator()<Rounding::kAwayOfProduct>();
    case Rounding::kEvenOfQuotient:
      return encode.template operator()<Rounding::kEvenOfQuotient>();
  }
}

WEIGHTSTORE_INLINE void encode_by_length(Rounding rounding, const Runs& runs, const CodeRange& range, std::int8_t* out){
    WEIGHTSTORE_FOR_LENGTH(encode_of_length, runs.length, rounding, runs, range, out)}

WEIGHTSTORE_AVX2 void encode_avx2(Rounding rounding, const Runs& runs, const CodeRange& range, std::int8_t* out) {
  encode_by_length(rounding, runs, range, out);
}

template <unsigned kBits>
void pack(const std::int8_t* codes, std::size_t count, std::uint8_t* out) {
  constexpr std::size_t kPerByte = 8 / kBits;
  constexpr unsigned kMask = (1u << kBits) - 1;
  const auto byte_of = [&](std::size_t first, std::size_t length) {
    unsigned byte = 0;
    for (std::size_t i = 0; i < length; ++i) byte |= (static_cast<unsigned>(codes[first + i]) & kMask) << (i * kBits);
    return static_cast<std::uint8_t>(byte);
  };
  const std::size_t whole = count / kPerByte;
  std::size_t done = 0;
  if constexpr (kBits == 4 && std::endian::native == std::endian::little) {
    // Eight codes at a time: neighbours move together in halves.
    for (; done + 4 <= whole; done += 4) {
      std::uint64_t word;
      std::memcpy(&word, codes + done * 2, sizeof(word));
      word &= 0x0f0f'0f0f'0f0f'0f0fu;
      word = (word | word >> 4) & 0x00ff'00ff'00ff'00ffu;
      word = (word | word >> 8) & 0x0000'ffff'0000'ffffu;
      const auto packed = static_cast<std::uint32_t>(word | word >> 16);
      std::memcpy(out + done, &packed, sizeof(packed));
    }
  }
  for (; done < whole; ++done) out[done] = byte_of(done * kPerByte, kPerByte);
  if (count % kPerByte != 0) out[whole] = byte_of(whole * kPerByte, count % kPerByte);
}

}  // namespace

void raise_peaks(const float* in, std::size_t length, std::size_t runs, std::uint32_t* peaks) {
  if (has_avx2()) return raise_avx2(in, length, runs, peaks);
  raise_by_length(in, length, runs, peaks);
}

void encode_runs(Rounding rounding, const Runs& runs, const CodeRange& range, std::int8_t* out) {
  if (has_avx2()) return encode_avx2(rounding, runs, range, out);
  encode_by_length(rounding, runs, range, out);
}

void pack_codes(const std::int8_t* codes, std::size_t count, unsigned bits, std::uint8_t* out) {
  if (bits == 4) return pack<4>(codes, count, out);
  pack<2>(codes, count, out);
}

}  // namespace weightstore::kernels
