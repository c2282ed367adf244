#pragma once

// The releases of Burn that Burnpack files are written for, and how they differ. Burn has changed the format several
// times without a new version number.

#include <cstdint>
#include <optional>
#include <string_view>

namespace weightstore {

// Files without booleans and quantized tensors are the same for all of these releases. Burn 0.19 reads such files
// wrong, without an error.
enum class BurnRelease : std::uint8_t { k020, k021, k022, k023 };

// The newest release that is not a preview. Files are written for it unless the caller or the source says otherwise.
inline constexpr BurnRelease kNewestStableBurn = BurnRelease::k022;

// What a release reads and writes.
struct BurnTraits {
  std::string_view name;      // "0.20"
  bool has_bool_stores;       // booleans are {"Bool": store}; before, they are "Bool"
  bool has_two_level_scales;  // schemes have the keys `tensor` and `block`; before, they have `param` and `level`
  // A block of several dimensions is a rectangle. Otherwise it is a run of as many elements of the flattened tensor, on
  // a CPU.
  bool blocks_are_rectangles;
  // E4M3, E5M2 and E2M1 in a native store are floats. Otherwise they are integers, on a CPU.
  bool native_codes_are_floats;
  std::uint64_t file_bytes;  // the largest file that its reader opens
};

const BurnTraits& traits_of(BurnRelease release);

// "0.20", "0.21", "0.22" or "0.23".
std::string_view name_of(BurnRelease release);

// The release with this version: "0.22", and also "0.22.1" or "0.23.0-pre.1". nullopt for any other text.
std::optional<BurnRelease> burn_release_from_name(std::string_view version);

}  // namespace weightstore
