#pragma once

// Element types: those of SafeTensors, those of Burnpack, those that only torch has, and the quantized types of GGUF.

#include <cstdint>
#include <optional>
#include <string_view>

namespace weightstore {

// The types of SafeTensors come first, in ascending rank. A SafeTensors writer places tensors of higher rank first.
enum class DType : std::uint8_t {
  kBool,
  kF4,  // two elements per byte
  kF6_E2M3,
  kF6_E3M2,
  kU8,
  kI8,
  kF8_E5M2,
  kF8_E4M3,
  kF8_E8M0,
  kF8_E4M3FNUZ,
  kF8_E5M2FNUZ,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,  // two F32
  kF64,
  kI64,
  kU64,
  // Burnpack only.
  kFlex32,   // stored as F32
  kBoolU8,   // a bool in one byte, where the file says so explicitly
  kBoolU32,  // a bool in four bytes
  kQFloat,   // quantized; its QuantScheme says how
  // PyTorch only.
  kC32,   // two F16
  kC128,  // two F64
  // GGUF only. Elements are quantized in blocks: block_of() has their sizes.
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ8_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kQ8_K,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kIQ4_NL,
  kIQ4_XS,
  kTQ1_0,
  kTQ2_0,
  kMXFP4,
  kNVFP4,
  kQ1_0,
};

inline constexpr int kDTypeCount = static_cast<int>(DType::kQ1_0) + 1;

// The bits of one element; 0 for kQFloat, whose size depends on the scheme, and for types with blocks.
unsigned bits_of(DType dtype);

// A block of a quantized type of GGUF: that many neighbouring elements of a row have that many bytes together.
struct BlockSize {
  unsigned elements;
  unsigned bytes;
};

// nullopt for every type that is not quantized in blocks.
std::optional<BlockSize> block_of(DType dtype);

// The name that SafeTensors uses ("F32", "F8_E4M3", ...); "Flex32", "BoolU8", "BoolU32", "QFloat", "C32" and "C128" for
// other types; GGUF's name for its own ("Q4_K", ...).
std::string_view name_of(DType dtype);

// The inverse of name_of(); case-sensitive.
std::optional<DType> dtype_from_name(std::string_view name);

// True for the types a SafeTensors file can hold.
bool in_safetensors(DType dtype);

// True for the types a Burnpack file can hold.
bool in_burnpack(DType dtype);

}  // namespace weightstore
