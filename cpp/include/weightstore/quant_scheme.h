#pragma once

// How a Burnpack QFloat tensor is quantized. The payload is carried as opaque bytes: values, then scales.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weightstore {

enum class QuantValue : std::uint8_t { kQ8F, kE5M2, kE4M3, kQ4F, kE2M1, kQ2F, kQ8S, kQ4S, kQ2S };
enum class QuantParam : std::uint8_t { kF32, kF16, kBF16, kUE8M0, kUE4M3 };
enum class QuantStore : std::uint8_t { kNative, kPackedNative, kPackedU32 };
enum class QuantMode : std::uint8_t { kSymmetric, kLookup };

// Which revision of Burn spelled a scheme; the fields differ (docs/formats.md, "Quantized tensors").
enum class QuantEncoding : std::uint8_t { kBurn019, kBurn020, kBurn022 };

struct QuantScheme {
  QuantEncoding encoding = QuantEncoding::kBurn020;
  QuantValue value = QuantValue::kQ8F;
  QuantStore store = QuantStore::kPackedU32;
  std::uint64_t packed_dim = 0;  // counted from the innermost dimension; 0 for kNative
  QuantMode mode = QuantMode::kSymmetric;

  // Scale of the whole tensor. Before 0.22 it is present exactly when there is no block scale; in 0.22 both may be
  // absent (one F32 scale) or both present (two levels).
  std::optional<QuantParam> tensor_scale = QuantParam::kF32;
  // Scale of blocks, and the block's size in the last `block.size()` dimensions (1 to 5 of them, when present).
  std::optional<QuantParam> block_scale;
  std::vector<std::uint8_t> block;

  bool operator==(const QuantScheme&) const = default;
};

// The scheme in another revision's terms, or nullopt when that revision cannot say it.
std::optional<QuantScheme> as_encoding(const QuantScheme& scheme, QuantEncoding encoding);

// Bytes of the payload of a tensor of this shape: what a writer of `scheme.encoding` announces and stores. Throws
// Error(kUnsupported) for a combination whose length is not defined, Error(kLimit) on overflow.
std::uint64_t payload_bytes(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape);

// One line for people, e.g. "Q8S F32 Native Block[32] Symmetric".
std::string to_string(const QuantScheme& scheme);

}  // namespace weightstore
