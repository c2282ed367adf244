// Types whose blocks have 32 or 64 elements. block_types.h says what a type has, and who includes this.

namespace weightstore::kernels {
namespace {

// ---- blocks of 32 elements ------------------------------------------------------------------------------------------

struct Q4_0 {
  static constexpr int kElements = 32, kBytes = 18, kGroup = 32;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    take_nibbles<16>(block + 2, codes);
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
    take_nibbles<16>(block + 4, codes);
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
    take_nibbles<16>(block + 6, codes);
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
    take_nibbles<16>(block + 8, codes);
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
inline constexpr CodeTable kNonLinear = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct IQ4_NL {
  static constexpr int kElements = 32, kBytes = 18, kGroup = 32;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    take_nibbles<16>(block + 2, codes);
    look_up<32>(kNonLinear, codes);
    return codes;
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float*) {
    scales[0] = half_at(block);
  }
};

// Twice the numbers of E2M1.
inline constexpr CodeTable kTwiceE2M1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct MXFP4 {
  static constexpr int kElements = 32, kBytes = 17, kGroup = 32;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    take_nibbles<16>(block + 1, codes);
    look_up<32>(kTwiceE2M1, codes);
    return codes;
  }
  // Half the power of two that the byte stands for: 2^(n - 128), which is subnormal for 0 and 1.
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float*) {
    const std::uint32_t n = block[0];
    scales[0] = std::bit_cast<float>(n < 2 ? 0x0020'0000u << n : (n - 1) << 23);
  }
};

// ---- blocks of 64 elements ------------------------------------------------------------------------------------------

// Half of an unsigned E4M3. The code of NaN stands for 0, and the highest bit for nothing.
constexpr float half_of_e4m3(int byte) {
  const int exponent = byte >> 3 & 15;
  const auto mantissa = static_cast<float>(byte & 7);
  const float power = std::bit_cast<float>(static_cast<std::uint32_t>(exponent - 7 + 127) << 23);
  const float number = exponent == 0 ? mantissa * 0x1p-9f : (1.0f + mantissa / 8.0f) * power;
  return byte == 0x7F ? 0.0f : number * 0.5f;
}

inline constexpr auto kHalvesOfE4M3 = [] {
  std::array<float, 256> halves{};
  for (int byte = 0; byte < 256; ++byte) halves[static_cast<std::size_t>(byte)] = half_of_e4m3(byte);
  return halves;
}();

struct NVFP4 {
  static constexpr int kElements = 64, kBytes = 36, kGroup = 16;
  static constexpr Rule kRule = Rule::kScale;
  WEIGHTSTORE_KERNEL static const std::int8_t* unpack(const std::uint8_t* block, std::int8_t* codes) {
    take_nibbles<8>(block + 4, codes);
    take_nibbles<8>(block + 20, codes + 32);
    look_up<64>(kTwiceE2M1, codes);
    return codes;
  }
  WEIGHTSTORE_KERNEL static void scales(const std::uint8_t* block, float* scales, float*) {
    for (int group = 0; group < 4; ++group) scales[group] = kHalvesOfE4M3[block[group]];
  }
};

}  // namespace
}  // namespace weightstore::kernels
