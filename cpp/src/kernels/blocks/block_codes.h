// What the blocks of GGUF's quantized types hold: the code of every element, and the numbers by which a group of codes
// is scaled and shifted. docs/formats.md, "GGUF numbers", has the rules.
//
// This file is included by decode_portable.cc and by decode_vector.cc, which define WEIGHTSTORE_KERNEL (attributes of
// every function) and half_to_float() before. So it has no include guard, and all of it is in an anonymous namespace of
// the file that includes it. The loops over bytes are plain, because compilers make vector instructions of them.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "weightstore/dtype.h"

namespace weightstore::kernels {
namespace {

// How a number is made of its code.
enum class Rule : std::uint8_t {
  kScale,  // scale * code
  kMinus,  // scale * code - shift
  kPlus,   // scale * code + shift
};

// The codes of a block. Every type below has
//   kElements, kBytes: of a block; kGroup: elements with one scale; kRule;
//   unpack(block, codes): fills `codes`, and returns them, or where they are in the block;
//   scales(block, scales, shifts): one of each for a group. `shifts` is not used with Rule::kScale.

WEIGHTSTORE_KERNEL inline float half_at(const std::uint8_t* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  if constexpr (std::endian::native == std::endian::big) bits = __builtin_bswap16(bits);
  return half_to_float(bits);
}

// out[i] = in[i] >> shift & mask, for 32 or fewer bytes.
template <int kCount>
WEIGHTSTORE_KERNEL inline void take_bits(const std::uint8_t* in, int shift, int mask, std::int8_t* out) {
  for (int i = 0; i < kCount; ++i) out[i] = static_cast<std::int8_t>((in[i] >> shift) & mask);
}

// The low halves of 16 bytes, then the high halves.
WEIGHTSTORE_KERNEL inline void take_nibbles(const std::uint8_t* in, std::int8_t* out) {
  take_bits<16>(in, 0, 15, out);
  take_bits<16>(in, 4, 15, out + 16);
}

template <int kCount>
WEIGHTSTORE_KERNEL inline void add_to_codes(std::int8_t* codes, int number) {
  for (int i = 0; i < kCount; ++i) codes[i] = static_cast<std::int8_t>(codes[i] + number);
}

// codes[i] gets bit i of a word of 32 bits as bit 4.
WEIGHTSTORE_KERNEL inline void add_fifth_bits(const std::uint8_t* word, std::int8_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<std::int8_t>(codes[i] | ((word[i / 8] >> (i % 8) & 1) << 4));
}

template <class Table>
WEIGHTSTORE_KERNEL inline void look_up(const Table& table, int count, std::int8_t* codes) {
  for (int i = 0; i < count; ++i) codes[i] = table[static_cast<std::size_t>(codes[i])];
}

// ---- blocks of 32 elements ------------------------------------------------------------------------------------------

struct Q4_0 {
  static constexpr int kElements = 32, kBytes = 18, kGroup = 32;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    take_nibbles(block + 2, codes);
    add_to_codes<32>(codes, -8);
    return codes;
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float*) {
    scales[0] = half_at(block);
  }
};

struct Q4_1 {
  static constexpr int kElements = 32, kBytes = 20, kGroup = 32;
  static constexpr Rule kRule = Rule::kPlus;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    take_nibbles(block + 4, codes);
    return codes;
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float* shifts) {
    scales[0] = half_at(block);
    shifts[0] = half_at(block + 2);
  }
};

struct Q5_0 {
  static constexpr int kElements = 32, kBytes = 22, kGroup = 32;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    take_nibbles(block + 6, codes);
    add_fifth_bits(block + 2, codes);
    add_to_codes<32>(codes, -16);
    return codes;
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float*) {
    scales[0] = half_at(block);
  }
};

struct Q5_1 {
  static constexpr int kElements = 32, kBytes = 24, kGroup = 32;
  static constexpr Rule kRule = Rule::kPlus;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    take_nibbles(block + 8, codes);
    add_fifth_bits(block + 4, codes);
    return codes;
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float* shifts) {
    scales[0] = half_at(block);
    shifts[0] = half_at(block + 2);
  }
};

struct Q8_0 {
  static constexpr int kElements = 32, kBytes = 34, kGroup = 32;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t*) {
    return reinterpret_cast<const std::int8_t*>(block + 2);
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float*) {
    scales[0] = half_at(block);
  }
};

// A table of 16 numbers that are close where weights are many.
inline constexpr std::array<std::int8_t, 16> kNonLinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                           1,    13,   25,  38,  53,  69,  89,  113};

struct IQ4_NL {
  static constexpr int kElements = 32, kBytes = 18, kGroup = 32;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    take_nibbles(block + 2, codes);
    look_up(kNonLinear, 32, codes);
    return codes;
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float*) {
    scales[0] = half_at(block);
  }
};

// Twice the numbers of E2M1.
inline constexpr std::array<std::int8_t, 16> kTwiceE2M1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct MXFP4 {
  static constexpr int kElements = 32, kBytes = 17, kGroup = 32;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    take_nibbles(block + 1, codes);
    look_up(kTwiceE2M1, 32, codes);
    return codes;
  }
  // Half the power of two that the byte stands for: 2^(n - 128), which is subnormal for 0 and 1.
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float*) {
    const std::uint32_t n = block[0];
    scales[0] = std::bit_cast<float>(n < 2 ? 0x0020'0000u << n : (n - 1) << 23);
  }
};

// ---- blocks of 64 elements ------------------------------------------------------------------------------------------

struct NVFP4 {
  static constexpr int kElements = 64, kBytes = 36, kGroup = 16;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    for (int group = 0; group < 4; ++group) {
      take_bits<8>(block + 4 + 8 * group, 0, 15, codes + 16 * group);
      take_bits<8>(block + 4 + 8 * group, 4, 15, codes + 16 * group + 8);
    }
    look_up(kTwiceE2M1, 64, codes);
    return codes;
  }
  // Half of an unsigned E4M3. The code of NaN stands for 0, and the highest bit for nothing.
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float*) {
    for (int group = 0; group < 4; ++group) {
      const int byte = block[group];
      const int exponent = byte >> 3 & 15;
      const auto mantissa = static_cast<float>(byte & 7);
      const float power = std::bit_cast<float>(static_cast<std::uint32_t>(exponent - 7 + 127) << 23);
      const float number = exponent == 0 ? mantissa * 0x1p-9f : (1.0f + mantissa / 8.0f) * power;
      scales[group] = byte == 0x7F ? 0.0f : number * 0.5f;
    }
  }
};

// ---- blocks of 256 elements -----------------------------------------------------------------------------------------

struct Q2_K {
  static constexpr int kElements = 256, kBytes = 84, kGroup = 16;
  static constexpr Rule kRule = Rule::kMinus;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    for (int part = 0; part < 8; ++part)
      take_bits<32>(block + 16 + 32 * (part / 4), 2 * (part % 4), 3, codes + 32 * part);
    return codes;
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float* shifts) {
    const float scale = half_at(block + 80);
    const float shift = half_at(block + 82);
    for (int group = 0; group < 16; ++group) {
      scales[group] = scale * static_cast<float>(block[group] & 15);
      shifts[group] = shift * static_cast<float>(block[group] >> 4);
    }
  }
};

struct Q3_K {
  static constexpr int kElements = 256, kBytes = 110, kGroup = 16;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    for (int part = 0; part < 8; ++part) {
      const std::uint8_t* low = block + 32 + 32 * (part / 4);
      const int shift = 2 * (part % 4);
      for (int i = 0; i < 32; ++i) {
        // A high bit that is not set takes away 4.
        const int high = block[i] >> part & 1;
        codes[32 * part + i] = static_cast<std::int8_t>((low[i] >> shift & 3) + 4 * high - 4);
      }
    }
    return codes;
  }
  // Sixteen numbers of six bits: four bits in eight bytes, two bits in four.
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float*) {
    const std::uint8_t* low = block + 96;
    const std::uint8_t* high = block + 104;
    const float scale = half_at(block + 108);
    for (int group = 0; group < 16; ++group) {
      const int bits = (low[group % 8] >> 4 * (group / 8) & 15) | (high[group % 4] >> 2 * (group / 4) & 3) << 4;
      scales[group] = scale * static_cast<float>(bits - 32);
    }
  }
};

// Eight pairs of numbers of six bits in twelve bytes, as Q4_K and Q5_K have them.
WEIGHTSTORE_KERNEL inline void scales_and_shifts(const std::uint8_t* block, float* scales, float* shifts) {
  const float scale = half_at(block);
  const float shift = half_at(block + 2);
  const std::uint8_t* packed = block + 4;
  for (int group = 0; group < 4; ++group) {
    scales[group] = scale * static_cast<float>(packed[group] & 63);
    shifts[group] = shift * static_cast<float>(packed[group + 4] & 63);
    scales[group + 4] = scale * static_cast<float>((packed[group + 8] & 15) | (packed[group] >> 2 & 0x30));
    shifts[group + 4] = shift * static_cast<float>((packed[group + 8] >> 4) | (packed[group + 4] >> 2 & 0x30));
  }
}

struct Q4_K {
  static constexpr int kElements = 256, kBytes = 144, kGroup = 32;
  static constexpr Rule kRule = Rule::kMinus;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    for (int part = 0; part < 8; ++part)
      take_bits<32>(block + 16 + 32 * (part / 2), 4 * (part % 2), 15, codes + 32 * part);
    return codes;
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float* shifts) {
    scales_and_shifts(block, scales, shifts);
  }
};

struct Q5_K {
  static constexpr int kElements = 256, kBytes = 176, kGroup = 32;
  static constexpr Rule kRule = Rule::kMinus;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    const std::uint8_t* high = block + 16;
    for (int part = 0; part < 8; ++part) {
      const std::uint8_t* low = block + 48 + 32 * (part / 2);
      const int shift = 4 * (part % 2);
      for (int i = 0; i < 32; ++i) {
        codes[32 * part + i] = static_cast<std::int8_t>((low[i] >> shift & 15) | (high[i] >> part & 1) << 4);
      }
    }
    return codes;
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float* shifts) {
    scales_and_shifts(block, scales, shifts);
  }
};

struct Q6_K {
  static constexpr int kElements = 256, kBytes = 210, kGroup = 16;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    for (int part = 0; part < 8; ++part) {
      const std::uint8_t* low = block + 64 * (part / 4) + 32 * (part % 2);
      const std::uint8_t* high = block + 128 + 32 * (part / 4);
      const int low_shift = part % 4 < 2 ? 0 : 4;
      const int high_shift = 2 * (part % 4);
      for (int i = 0; i < 32; ++i) {
        codes[32 * part + i] =
            static_cast<std::int8_t>(((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4) - 32);
      }
    }
    return codes;
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float*) {
    const float scale = half_at(block + 208);
    for (int group = 0; group < 16; ++group) {
      scales[group] = scale * static_cast<float>(static_cast<std::int8_t>(block[192 + group]));
    }
  }
};

struct IQ4_XS {
  static constexpr int kElements = 256, kBytes = 136, kGroup = 32;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    for (int group = 0; group < 8; ++group) take_nibbles(block + 8 + 16 * group, codes + 32 * group);
    look_up(kNonLinear, 256, codes);
    return codes;
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float*) {
    const float scale = half_at(block);
    for (int group = 0; group < 8; ++group) {
      const int low = block[4 + group / 2] >> 4 * (group % 2) & 15;
      const int high = block[2 + group / 4] >> 2 * (group % 4) & 3;
      scales[group] = scale * static_cast<float>((low | high << 4) - 32);
    }
  }
};

// Codes of three values. A byte holds five of them as a fraction of 256 in base 3: three times the byte has the first
// digit above its eight bits, and what is left there is the byte for the others.
struct TQ1_0 {
  static constexpr int kElements = 256, kBytes = 54, kGroup = 256;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    take_digits<32, 5>(block, codes);
    take_digits<16, 5>(block + 32, codes + 160);
    take_digits<4, 4>(block + 48, codes + 240);
    return codes;
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float*) {
    scales[0] = half_at(block + 52);
  }

 private:
  template <int kCount, int kDigits>
  WEIGHTSTORE_KERNEL static void take_digits(const std::uint8_t* in, std::int8_t* codes) {
    int power = 1;
    for (int digit = 0; digit < kDigits; ++digit, power *= 3) {
      for (int i = 0; i < kCount; ++i) {
        codes[kCount * digit + i] = static_cast<std::int8_t>(((in[i] * power & 0xFF) * 3 >> 8) - 1);
      }
    }
  }
};

struct TQ2_0 {
  static constexpr int kElements = 256, kBytes = 66, kGroup = 256;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    for (int part = 0; part < 8; ++part) take_bits<32>(block + 32 * (part / 4), 2 * (part % 4), 3, codes + 32 * part);
    add_to_codes<256>(codes, -1);
    return codes;
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float*) {
    scales[0] = half_at(block + 64);
  }
};

// Decoder<Type>::run for a type that is known at run time; null when it is not dequantized.
template <template <class> class Decoder>
DecodeBlocks decoder_for(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return Decoder<Q4_0>::run;
    case DType::kQ4_1:
      return Decoder<Q4_1>::run;
    case DType::kQ5_0:
      return Decoder<Q5_0>::run;
    case DType::kQ5_1:
      return Decoder<Q5_1>::run;
    case DType::kQ8_0:
      return Decoder<Q8_0>::run;
    case DType::kQ2_K:
      return Decoder<Q2_K>::run;
    case DType::kQ3_K:
      return Decoder<Q3_K>::run;
    case DType::kQ4_K:
      return Decoder<Q4_K>::run;
    case DType::kQ5_K:
      return Decoder<Q5_K>::run;
    case DType::kQ6_K:
      return Decoder<Q6_K>::run;
    case DType::kIQ4_NL:
      return Decoder<IQ4_NL>::run;
    case DType::kIQ4_XS:
      return Decoder<IQ4_XS>::run;
    case DType::kTQ1_0:
      return Decoder<TQ1_0>::run;
    case DType::kTQ2_0:
      return Decoder<TQ2_0>::run;
    case DType::kMXFP4:
      return Decoder<MXFP4>::run;
    case DType::kNVFP4:
      return Decoder<NVFP4>::run;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace weightstore::kernels
