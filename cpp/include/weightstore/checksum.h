#pragma once

// crc32c (Castagnoli), as in iSCSI, ext4 and TensorFlow's checkpoints.

#include <cstdint>

#include "weightstore/byte_source.h"

namespace weightstore {

// Continues the checksum `crc` (0 at the beginning) with `bytes`. Uses the processor's instruction if there is one.
std::uint32_t crc32c(ConstBytes bytes, std::uint32_t crc = 0);

// The metadata key of the checksums of a file's tensors. The value is JSON that maps each name to eight hexadecimal
// digits.
inline constexpr const char* kChecksumKey = "weightstore.crc32c";

}  // namespace weightstore
