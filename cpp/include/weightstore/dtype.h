#pragma once

// Element types: those of SafeTensors, those of Burnpack, and those that only torch has.

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
};

inline constexpr int kDTypeCount = static_cast<int>(DType::kC128) + 1;

// The bits of one element; 0 for kQFloat, whose size depends on the scheme.
unsigned bits_of(DType dtype);

// The name that SafeTensors uses ("F32", "F8_E4M3", ...); "Flex32", "BoolU8", "BoolU32", "QFloat", "C32" and "C128" for
// the other types.
std::string_view name_of(DType dtype);

// The inverse of name_of(); case-sensitive.
std::optional<DType> dtype_from_name(std::string_view name);

// True for the types a SafeTensors file can hold.
bool in_safetensors(DType dtype);

// True for the types a Burnpack file can hold.
bool in_burnpack(DType dtype);

}  // namespace weightstore
