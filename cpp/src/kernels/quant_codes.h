#pragma once

// The codes that a quantized value is stored as, and the numbers that they stand for.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weightstore/quant_scheme.h"

namespace weightstore::kernels {

// How a scheme stores its codes in the bytes of a payload.
struct CodeTable {
  explicit CodeTable(const QuantScheme& scheme);

  // The codes of neighbouring bytes that are in the same place of their bytes: `shift` bits above the lowest. Not for
  // whole bytes. `out` may be `bytes`.
  void extract(const std::uint8_t* bytes, std::size_t count, unsigned shift, std::int8_t* out) const;

  unsigned bits;       // the distance of two codes: 8, 4 or 2
  unsigned code_bits;  // of a code, the lowest of its distance
  bool is_float;       // a code stands for values[code]; otherwise it is a signed integer
  bool is_whole_byte;  // a code is a byte as it is
  // The codes in each byte, the first one in the lowest byte.
  std::array<std::uint32_t, 256> codes;
  std::array<float, 256> values;
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

// out[i] = scale * codes[i], in the arithmetic of F32. `stream` bypasses the caches where `out` is aligned to 32 bytes.
void scale_integers(const std::int8_t* codes, std::size_t count, float scale, float* out, bool stream);

// out[i] = scale * values[codes[i]].
void scale_floats(const std::int8_t* codes, std::size_t count, float scale, const std::array<float, 256>& values,
                  float* out);

// To be called after the last function above with `stream`, before another thread reads the numbers.
void end_stream();

// The numbers that single bytes stand for.
float e4m3_value(std::uint8_t code);
float e5m2_value(std::uint8_t code);
float e2m1_value(std::uint8_t code);   // the upper half of the byte is ignored
float ue8m0_value(std::uint8_t code);  // a power of two, or NaN

}  // namespace weightstore::kernels
