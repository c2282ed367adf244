#pragma once

// CRC-32 (IEEE 802.3), as in ZIP archives. For checksums of our own there is crc32c, which processors help with.

#include <cstdint>

#include "weightstore/byte_source.h"

namespace weightstore {

// Extends `crc` (0 to begin with) by `bytes`.
std::uint32_t crc32(ConstBytes bytes, std::uint32_t crc = 0);

}  // namespace weightstore
