#pragma once

// Quantization schemes as Burnpack spells them.

#include <cstdint>
#include <string_view>
#include <vector>

#include "codec/cbor.h"
#include "weightstore/quant_scheme.h"

namespace weightstore::burnpack {

// Names in the order of the enumerations.
inline constexpr std::string_view kQuantValues[] = {"Q8F", "E5M2", "E4M3", "Q4F", "E2M1", "Q2F", "Q8S", "Q4S", "Q2S"};
inline constexpr std::string_view kQuantParams[] = {"F32", "F16", "BF16", "UE8M0", "UE4M3"};
inline constexpr std::string_view kQuantStores[] = {"Native", "PackedNative", "PackedU32"};
inline constexpr std::string_view kQuantModes[] = {"Symmetric", "Lookup"};

inline constexpr std::size_t kMaxBlockDims = 5;

// Reads a scheme of any release. Its fields tell 0.20 and 0.21 from later releases, and so do the fields of a scheme of
// 0.19 (which is read as one of 0.20). Among later releases the result has the release `newest`. Throws kCorrupt, or
// kUnsupported for a name that no release has.
QuantScheme read_quant_scheme(CborCursor& cursor, BurnRelease newest = kNewestStableBurn);

// Writes `scheme` as scheme.release does. It must be one that as_release() gave.
void write_quant_scheme(CborWriter& writer, const QuantScheme& scheme);

// True when `length` is the payload's, as 0.20 or as 0.22 counts it: files have both.
bool payload_fits(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape, std::uint64_t length);

// False when payload_bytes() throws Error(kUnsupported): Burn's writer accepts such a tensor, but no backend of Burn
// makes one. A length that overflows is defined.
bool payload_is_defined(const QuantScheme& scheme, const std::vector<std::uint64_t>& shape);

}  // namespace weightstore::burnpack
