#pragma once

// How a QFloat tensor of a Burnpack file is quantized. Its payload is values, then scales.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weightstore/burn_release.h"

namespace weightstore {

enum class QuantValue : std::uint8_t { kQ8F, kE5M2, kE4M3, kQ4F, kE2M1, kQ2F, kQ8S, kQ4S, kQ2S };
enum class QuantParam : std::uint8_t { kF32, kF16, kBF16, kUE8M0, kUE4M3 };
enum class QuantStore : std::uint8_t { kNative, kPackedNative, kPackedU32 };
enum class QuantMode : std::uint8_t { kSymmetric, kLookup };

struct QuantScheme {
  // The release whose rules say how the scheme is spelled and what the payload means (docs/formats.md, "Quantized
  // tensors").
  BurnRelease release = BurnRelease::k020;
  QuantValue value = QuantValue::kQ8F;
  QuantStore store = QuantStore::kPackedU32;
  std::uint64_t packed_dim = 0;  // counted from the innermost dimension; 0 for kNative
  QuantMode mode = QuantMode::kSymmetric;

  // The type of the scale of the whole tensor. Before 0.22 it is present exactly when there is no block scale. Since
  // 0.22 both may be absent (one F32 scale), or both may be present (two levels).
  std::optional<QuantParam> tensor_scale = QuantParam::kF32;
  // The type of the scales of blocks, and the size of a block in the last block.size() dimensions (1 to 5, if present).
  std::optional<QuantParam> block_scale;
  std::vector<std::uint8_t> block;

  bool operator==(const QuantScheme&) const = default;
};

// The same scheme as another release spells it, or nullopt when that release cannot express it. The payload may mean
// other numbers there: has_same_values() tells.
std::optional<QuantScheme> as_release(const QuantScheme& scheme, BurnRelease release);

// True when `release` reads the numbers that scheme.release reads from the payload of a tensor of this shape.
bool has_same_values(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, BurnRelease release);

// The size in bytes of the payload of a tensor of this shape, as `scheme.release` stores it. Throws
// Error(kUnsupported) for a combination whose size is not defined, and Error(kLimit) on overflow.
std::uint64_t payload_bytes(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape);

// One line for people, e.g. "Q8S F32 Native Block[32] Symmetric".
std::string to_string(const QuantScheme& scheme);

}  // namespace weightstore
