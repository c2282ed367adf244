// Types whose blocks have 256 elements. block_types.h says what a type has, and who includes this.

namespace weightstore::kernels {
namespace {

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
      take_bits<32>(block + 32 + 32 * (part / 4), 2 * (part % 4), 3, codes + 32 * part);
      add_high_bits(block, part, 1, 2, codes + 32 * part);
    }
    add_to_codes<256>(codes, -4);
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
    for (int part = 0; part < 8; ++part) {
      take_bits<32>(block + 48 + 32 * (part / 2), 4 * (part % 2), 15, codes + 32 * part);
      add_high_bits(block + 16, part, 1, 4, codes + 32 * part);
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
      take_bits<32>(block + 64 * (part / 4) + 32 * (part % 2), part % 4 < 2 ? 0 : 4, 15, codes + 32 * part);
      add_high_bits(block + 128 + 32 * (part / 4), 2 * (part % 4), 3, 4, codes + 32 * part);
    }
    add_to_codes<256>(codes, -32);
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
    for (int group = 0; group < 8; ++group) take_nibbles<16>(block + 8 + 16 * group, codes + 32 * group);
    look_up<256>(kNonLinear, codes);
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

// Codes of three values, of which a byte holds five.
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

}  // namespace
}  // namespace weightstore::kernels
