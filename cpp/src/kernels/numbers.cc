#include "kernels/numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cast_kernels.h"
#include "kernels/quant_codes.h"

namespace weightstore::kernels {
namespace {

constexpr std::size_t kBlock = 1024;

// A float of eight bits without infinities whose only NaN is -0 (FNUZ). The sign bit comes first, then the exponent.
float fnuz_value(std::uint8_t code, int mantissa_bits, int bias) {
  if (code == 0x80) return std::numeric_limits<float>::quiet_NaN();
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const int exponent = (code & 0x7f) >> mantissa_bits;
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  const float magnitude = std::ldexp(static_cast<float>(whole), (exponent == 0 ? 1 : exponent) - bias - mantissa_bits);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

float e4m3fnuz_value(std::uint8_t code) { return fnuz_value(code, 3, 8); }
float e5m2fnuz_value(std::uint8_t code) { return fnuz_value(code, 2, 16); }

using ByteTable = std::array<float, 256>;

template <float (*kValue)(std::uint8_t)>
const ByteTable& table_of() {
  static const ByteTable table = [] {
    ByteTable values;
    for (int code = 0; code < 256; ++code)
      values[static_cast<std::size_t>(code)] = kValue(static_cast<std::uint8_t>(code));
    return values;
  }();
  return table;
}

// The values of a type that has a number in every byte; null for others.
const ByteTable* byte_table(DType dtype) {
  switch (dtype) {
    case DType::kF8_E4M3:
      return &table_of<e4m3_value>();
    case DType::kF8_E5M2:
      return &table_of<e5m2_value>();
    case DType::kF8_E8M0:
      return &table_of<ue8m0_value>();
    case DType::kF8_E4M3FNUZ:
      return &table_of<e4m3fnuz_value>();
    case DType::kF8_E5M2FNUZ:
      return &table_of<e5m2fnuz_value>();
    default:
      return nullptr;
  }
}

template <class Stored>
void widen(const std::byte* in, std::size_t count, double* out) {
  for (std::size_t i = 0; i < count; ++i) {
    Stored value;
    std::memcpy(&value, in + i * sizeof value, sizeof value);
    out[i] = static_cast<double>(value);
  }
}

}  // namespace

NumberKind number_kind(DType dtype) {
  switch (number_type(dtype)) {
    case DType::kF6_E2M3:
    case DType::kF6_E3M2:
    case DType::kQFloat:
      return NumberKind::kNone;
    case DType::kI64:
      return NumberKind::kSigned;
    case DType::kU64:
      return NumberKind::kUnsigned;
    case DType::kF4:
    case DType::kF8_E4M3:
    case DType::kF8_E5M2:
    case DType::kF8_E8M0:
    case DType::kF8_E4M3FNUZ:
    case DType::kF8_E5M2FNUZ:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32:
      return NumberKind::kFloat;
    default:
      return block_of(dtype) ? NumberKind::kNone : NumberKind::kDouble;
  }
}

DType number_type(DType dtype) {
  switch (dtype) {
    case DType::kC32:
      return DType::kF16;
    case DType::kC64:
    case DType::kFlex32:
      return DType::kF32;
    case DType::kC128:
      return DType::kF64;
    default:
      return dtype;
  }
}

void decode_numbers(DType dtype, const std::byte* in, std::size_t count, float* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, in, count * sizeof *out);
  } else if (const ByteTable* table = byte_table(dtype)) {
    for (std::size_t i = 0; i < count; ++i) out[i] = (*table)[std::to_integer<std::size_t>(in[i])];
  } else if (dtype == DType::kF4) {
    const ByteTable& values = table_of<e2m1_value>();
    for (std::size_t i = 0; i < count; ++i) {
      out[i] = values[std::to_integer<std::size_t>(i % 2 == 0 ? in[i / 2] & std::byte{15} : in[i / 2] >> 4)];
    }
  } else {
    cast_kernel(dtype, DType::kF32)(in, reinterpret_cast<std::byte*>(out), count);
  }
}

void decode_numbers(DType dtype, const std::byte* in, std::size_t count, double* out) {
  switch (dtype) {
    case DType::kF64:
      std::memcpy(out, in, count * sizeof *out);
      return;
    case DType::kBool:
    case DType::kBoolU8:
    case DType::kU8:
      return widen<std::uint8_t>(in, count, out);
    case DType::kI8:
      return widen<std::int8_t>(in, count, out);
    case DType::kI16:
      return widen<std::int16_t>(in, count, out);
    case DType::kU16:
      return widen<std::uint16_t>(in, count, out);
    case DType::kI32:
      return widen<std::int32_t>(in, count, out);
    case DType::kBoolU32:
    case DType::kU32:
      return widen<std::uint32_t>(in, count, out);
    case DType::kI64:
      return widen<std::int64_t>(in, count, out);
    case DType::kU64:
      return widen<std::uint64_t>(in, count, out);
    case DType::kF32:
      return widen<float>(in, count, out);
    default:
      break;
  }
  float block[kBlock];
  for (std::size_t done = 0; done < count; done += kBlock) {  // kBlock is even, for F4
    const std::size_t step = std::min(kBlock, count - done);
    decode_numbers(dtype, in + done * bits_of(dtype) / 8, step, block);
    for (std::size_t i = 0; i < step; ++i) out[done + i] = static_cast<double>(block[i]);
  }
}

}  // namespace weightstore::kernels
