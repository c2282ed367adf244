#include "kernels/quant_codes.h"

#include <bit>
#include <cstring>
#include <limits>

#include "kernels/half.h"

namespace weightstore::kernels {
namespace {

// `bits` low bits of `field` as a signed integer.
std::int8_t sign_extend(unsigned field, unsigned bits) {
  const unsigned shift = 8 - bits;
  return static_cast<std::int8_t>(static_cast<std::int8_t>(field << shift) >> shift);
}

unsigned distance(const QuantScheme& scheme) {
  switch (scheme.store) {
    case QuantStore::kNative:
      return 8;
    case QuantStore::kPackedNative:
      return scheme.value == QuantValue::kE2M1 ? 4 : 8;
    case QuantStore::kPackedU32:
      return value_bits(scheme.value);
  }
  return 8;
}

CodeKind kind_of(const QuantScheme& scheme) {
  if (scheme.store == QuantStore::kNative && !traits_of(scheme.release).native_codes_are_floats) {
    return CodeKind::kInteger;
  }
  switch (scheme.value) {
    case QuantValue::kE4M3:
      return CodeKind::kE4M3;
    case QuantValue::kE5M2:
      return CodeKind::kE5M2;
    case QuantValue::kE2M1:
      return CodeKind::kE2M1;
    default:
      return CodeKind::kInteger;
  }
}

float value_of(CodeKind kind, std::uint8_t code) {
  switch (kind) {
    case CodeKind::kInteger:
      return static_cast<float>(static_cast<std::int8_t>(code));
    case CodeKind::kE4M3:
      return e4m3_value(code);
    case CodeKind::kE5M2:
      return e5m2_value(code);
    case CodeKind::kE2M1:
      return e2m1_value(code);
  }
  return 0;
}

}  // namespace

CodeTable::CodeTable(const QuantScheme& scheme) : kind(kind_of(scheme)), bits(distance(scheme)), codes() {
  const bool is_native = scheme.store == QuantStore::kNative;
  // A native store has whole bytes, also of smaller types.
  code_bits = is_native ? 8 : value_bits(scheme.value);
  is_whole_byte = bits == 8 && code_bits == 8;
  for (unsigned byte = 0; byte < 256; ++byte) {
    for (unsigned i = 0; i < 8 / bits; ++i) {
      const unsigned field = (byte >> (i * bits)) & ((1u << code_bits) - 1);
      const auto code = kind == CodeKind::kInteger ? static_cast<std::uint8_t>(sign_extend(field, code_bits))
                                                   : static_cast<std::uint8_t>(field);
      codes[byte] |= std::uint32_t{code} << (8 * i);
    }
    values[byte] = value_of(kind, static_cast<std::uint8_t>(byte));
  }
}

void CodeTable::extract(const std::uint8_t* bytes, std::size_t count, unsigned shift, std::uint8_t* out) const {
  // Eight codes at a time. Of a signed code the sign bit is turned over and then subtracted, which extends it. The
  // highest bit of each byte is set meanwhile, so that no byte borrows from the next.
  constexpr std::uint64_t kEach = 0x0101'0101'0101'0101;
  const std::uint64_t mask = kEach * ((1u << code_bits) - 1);
  const std::uint64_t sign = kind == CodeKind::kInteger ? kEach << (code_bits - 1) : 0;
  const std::uint64_t top = kEach << 7;
  const auto codes_of = [=](std::uint64_t word) { return ((((word >> shift & mask) ^ sign) | top) - sign) ^ top; };
  const std::size_t whole = count / 8 * 8;
  for (std::size_t i = 0; i < whole; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes + i, 8);
    word = codes_of(word);
    std::memcpy(out + i, &word, 8);
  }
  for (std::size_t i = whole; i < count; ++i) out[i] = static_cast<std::uint8_t>(codes_of(bytes[i]));
}

unsigned value_bits(QuantValue value) {
  switch (value) {
    case QuantValue::kQ8F:
    case QuantValue::kQ8S:
    case QuantValue::kE5M2:
    case QuantValue::kE4M3:
      return 8;
    case QuantValue::kQ4F:
    case QuantValue::kQ4S:
    case QuantValue::kE2M1:
      return 4;
    case QuantValue::kQ2F:
    case QuantValue::kQ2S:
      return 2;
  }
  return 8;
}

std::size_t scale_bytes(QuantParam type) {
  switch (type) {
    case QuantParam::kF32:
      return 4;
    case QuantParam::kF16:
    case QuantParam::kBF16:
      return 2;
    case QuantParam::kUE8M0:
    case QuantParam::kUE4M3:
      return 1;
  }
  return 4;
}

bool is_float(QuantValue value) {
  return value == QuantValue::kE4M3 || value == QuantValue::kE5M2 || value == QuantValue::kE2M1;
}

bool blocks_are_runs(std::span<const std::uint8_t> block, std::span<const std::uint64_t> shape) {
  bool covers = true;  // the block covers all dimensions behind this one
  for (std::size_t i = 1; i <= shape.size(); ++i) {
    const std::uint64_t dimension = shape[shape.size() - i];
    const std::uint64_t size = i <= block.size() ? block[block.size() - i] : 1;
    if (covers ? dimension % size != 0 : size != 1) return false;
    covers = covers && size == dimension;
  }
  return true;
}

float e4m3_value(std::uint8_t code) {
  const unsigned exponent = (code >> 3) & 15;
  const unsigned mantissa = code & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                                        : std::bit_cast<float>(((exponent + 120) << 23) | (mantissa << 20));
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// The upper byte of an F16.
float e5m2_value(std::uint8_t code) { return std::bit_cast<float>(widen_f16(static_cast<std::uint16_t>(code << 8))); }

float e2m1_value(std::uint8_t code) {
  constexpr float kMagnitudes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return (code & 8) != 0 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
}

float ue8m0_value(std::uint8_t code) {
  if (code == 255) return std::numeric_limits<float>::quiet_NaN();
  return code == 0 ? 0x1p-127f : std::bit_cast<float>(std::uint32_t{code} << 23);
}

}  // namespace weightstore::kernels
