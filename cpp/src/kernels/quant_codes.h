#pragma once

// The codes that a quantized value is stored as, and the numbers that they stand for.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weightstore/quant_scheme.h"

namespace weightstore::kernels {

// What a code of eight bits stands for.
enum class CodeKind : std::uint8_t {
  kInteger,  // a signed integer
  kE4M3,
  kE5M2,
  kE2M1,  // the upper half of the byte is ignored
};

// How a scheme stores its codes in the bytes of a payload.
struct CodeTable {
  explicit CodeTable(const QuantScheme& scheme);

  // The codes of neighbouring bytes that are in the same place of their bytes: `shift` bits above the lowest. Not for
  // whole bytes. `out` may be `bytes`.
  void extract(const std::uint8_t* bytes, std::size_t count, unsigned shift, std::uint8_t* out) const;

  CodeKind kind;
  unsigned bits;       // the distance of two codes: 8, 4 or 2
  unsigned code_bits;  // of a code, the lowest of its distance
  bool is_whole_byte;  // a code is a byte as it is
  // The codes in each byte, the first one in the lowest byte.
  std::array<std::uint32_t, 256> codes;
  std::array<float, 256> values;  // of the codes
};

// The bits of one value.
unsigned value_bits(QuantValue value);

// The bytes of one scale.
std::size_t scale_bytes(QuantParam type);

// True for E4M3, E5M2 and E2M1.
bool is_float(QuantValue value);

// True when every block is a run of elements of the flattened tensor, and all blocks are whole. Then a block is the
// same for releases that take it as a rectangle and for those that take it as a run.
bool blocks_are_runs(std::span<const std::uint8_t> block, std::span<const std::uint64_t> shape);

// The numbers that single bytes stand for.
float e4m3_value(std::uint8_t code);
float e5m2_value(std::uint8_t code);
float e2m1_value(std::uint8_t code);   // the upper half of the byte is ignored
float ue8m0_value(std::uint8_t code);  // a power of two, or NaN

}  // namespace weightstore::kernels
