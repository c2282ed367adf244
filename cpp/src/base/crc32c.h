#pragma once

// The two implementations of crc32c(). Tests compare them.

#include <cstdint>

#include "weightstore/byte_source.h"

namespace weightstore::io {

// Works on any processor: uses tables, eight bytes per step.
std::uint32_t crc32c_by_table(ConstBytes bytes, std::uint32_t crc);

// True when this processor has the instruction that crc32c_by_instruction() needs.
bool has_crc32c_instruction();
std::uint32_t crc32c_by_instruction(ConstBytes bytes, std::uint32_t crc);

}  // namespace weightstore::io
