#pragma once

// Numbers of the Burnpack format (docs/formats.md, "Burnpack").

#include <cstddef>
#include <cstdint>

namespace weightstore::burnpack {

inline constexpr std::uint32_t kMagic = 0x4255524E;  // "NRUB" on disk: all of the header is little-endian
inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::size_t kHeaderBytes = 10;   // magic, version (2 bytes), size of the metadata (4 bytes)
inline constexpr std::uint64_t kAlignment = 256;  // of the data section, and of each tensor in it

}  // namespace weightstore::burnpack
