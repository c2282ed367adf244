#pragma once

// The loops of Quantizer, over runs of neighbours that share a scale.

#include <cstddef>
#include <cstdint>

namespace weightstore::kernels {

struct CodeRange {
  float least;
  float most;
};

enum class Rounding { kAwayOfQuotient, kAwayOfProduct, kEvenOfQuotient };

// Raises each of `peaks` to the bits of the largest magnitude of its run: `runs` runs of `length` numbers each. The
// bits of NaN and infinity are the largest.
void raise_peaks(const float* in, std::size_t length, std::size_t runs, std::uint32_t* peaks);

// Runs of `length` numbers each, one behind the other.
struct Runs {
  const float* in;
  std::size_t length;
  std::size_t count;
  const float* divisors;  // of each run
};

// Writes a code of one byte for each number.
void encode_runs(Rounding rounding, const Runs& runs, const CodeRange& range, std::int8_t* out);

// Codes of 4 or 2 bits into bytes, the first code in the lowest bits. The last byte may be filled in part.
void pack_codes(const std::int8_t* codes, std::size_t count, unsigned bits, std::uint8_t* out);

}  // namespace weightstore::kernels
