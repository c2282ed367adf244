#include "weightstore/dtype.h"

#include <array>

namespace weightstore {
namespace {

struct Traits {
  std::string_view name;
  unsigned bits;
  BlockSize block{0, 0};
};

constexpr unsigned kSuper = 256;  // elements of a block of the K and IQ types

// In the order of the enumeration.
constexpr std::array<Traits, kDTypeCount> kTraits = {{
    {"BOOL", 8},
    {"F4", 4},
    {"F6_E2M3", 6},
    {"F6_E3M2", 6},
    {"U8", 8},
    {"I8", 8},
    {"F8_E5M2", 8},
    {"F8_E4M3", 8},
    {"F8_E8M0", 8},
    {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8},
    {"I16", 16},
    {"U16", 16},
    {"F16", 16},
    {"BF16", 16},
    {"I32", 32},
    {"U32", 32},
    {"F32", 32},
    {"C64", 64},
    {"F64", 64},
    {"I64", 64},
    {"U64", 64},
    {"Flex32", 32},
    {"BoolU8", 8},
    {"BoolU32", 32},
    {"QFloat", 0},
    {"C32", 32},
    {"C128", 128},
    {"Q4_0", 0, {32, 18}},
    {"Q4_1", 0, {32, 20}},
    {"Q5_0", 0, {32, 22}},
    {"Q5_1", 0, {32, 24}},
    {"Q8_0", 0, {32, 34}},
    {"Q8_1", 0, {32, 40}},
    {"Q2_K", 0, {kSuper, 84}},
    {"Q3_K", 0, {kSuper, 110}},
    {"Q4_K", 0, {kSuper, 144}},
    {"Q5_K", 0, {kSuper, 176}},
    {"Q6_K", 0, {kSuper, 210}},
    {"Q8_K", 0, {kSuper, 292}},
    {"IQ1_S", 0, {kSuper, 50}},
    {"IQ1_M", 0, {kSuper, 56}},
    {"IQ2_XXS", 0, {kSuper, 66}},
    {"IQ2_XS", 0, {kSuper, 74}},
    {"IQ2_S", 0, {kSuper, 82}},
    {"IQ3_XXS", 0, {kSuper, 98}},
    {"IQ3_S", 0, {kSuper, 110}},
    {"IQ4_NL", 0, {32, 18}},
    {"IQ4_XS", 0, {kSuper, 136}},
    {"TQ1_0", 0, {kSuper, 54}},
    {"TQ2_0", 0, {kSuper, 66}},
    {"MXFP4", 0, {32, 17}},
    {"NVFP4", 0, {64, 36}},
    {"Q1_0", 0, {128, 18}},
}};

}  // namespace

unsigned bits_of(DType dtype) { return kTraits[static_cast<std::size_t>(dtype)].bits; }

std::optional<BlockSize> block_of(DType dtype) {
  const BlockSize block = kTraits[static_cast<std::size_t>(dtype)].block;
  return block.elements == 0 ? std::nullopt : std::optional(block);
}

std::string_view name_of(DType dtype) { return kTraits[static_cast<std::size_t>(dtype)].name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kTraits.size(); ++i) {
    if (kTraits[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool in_safetensors(DType dtype) { return dtype <= DType::kU64; }

bool in_burnpack(DType dtype) {
  if (block_of(dtype)) return false;
  switch (dtype) {
    case DType::kF4:
    case DType::kF6_E2M3:
    case DType::kF6_E3M2:
    case DType::kF8_E5M2:
    case DType::kF8_E4M3:
    case DType::kF8_E8M0:
    case DType::kF8_E4M3FNUZ:
    case DType::kF8_E5M2FNUZ:
    case DType::kC64:
    case DType::kC32:
    case DType::kC128:
      return false;
    default:
      return true;
  }
}

}  // namespace weightstore
