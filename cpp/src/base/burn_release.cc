#include "weightstore/burn_release.h"

#include <array>
#include <cstddef>

namespace weightstore {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

// In the order of BurnRelease.
constexpr std::array<BurnTraits, 4> kReleases = {{
    {.name = "0.20",
     .has_bool_stores = false,
     .has_two_level_scales = false,
     .blocks_are_rectangles = false,
     .native_codes_are_floats = true,
     .file_bytes = 100 * kGiB},
    {.name = "0.21",
     .has_bool_stores = true,
     .has_two_level_scales = false,
     .blocks_are_rectangles = false,
     .native_codes_are_floats = true,
     .file_bytes = 100 * kGiB},
    {.name = "0.22",
     .has_bool_stores = true,
     .has_two_level_scales = true,
     .blocks_are_rectangles = true,
     .native_codes_are_floats = false,
     .file_bytes = 100 * kGiB},
    {.name = "0.23",
     .has_bool_stores = true,
     .has_two_level_scales = true,
     .blocks_are_rectangles = true,
     .native_codes_are_floats = true,
     .file_bytes = 500 * kGiB},
}};

}  // namespace

const BurnTraits& traits_of(BurnRelease release) { return kReleases[static_cast<std::size_t>(release)]; }

std::string_view name_of(BurnRelease release) { return traits_of(release).name; }

std::optional<BurnRelease> burn_release_from_name(std::string_view version) {
  for (std::size_t i = 0; i < kReleases.size(); ++i) {
    if (!version.starts_with(kReleases[i].name)) continue;
    const std::string_view patch = version.substr(kReleases[i].name.size());
    const bool is_patch = patch.size() >= 2 && patch[0] == '.' && patch[1] >= '0' && patch[1] <= '9';
    if (patch.empty() || is_patch) return static_cast<BurnRelease>(i);
  }
  return std::nullopt;
}

}  // namespace weightstore
