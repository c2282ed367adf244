#pragma once

// crc32c (Castagnoli), as in iSCSI, ext4 and TensorFlow's checkpoints.

#include <cstdint>

#include "weightstore/byte_source.h"

namespace weightstore {

// Extends `crc` (0 to begin with) by `bytes`. Uses the processor's instruction where there is one.
std::uint32_t crc32c(ConstBytes bytes, std::uint32_t crc = 0);

// The metadata key under which a file keeps its tensors' checksums: JSON text, name to eight hexadecimal digits.
inline constexpr const char* kChecksumKey = "weightstore.crc32c";

}  // namespace weightstore
