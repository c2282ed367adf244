#pragma once

// The two ways to compute crc32c(), for the tests to compare.

#include <cstdint>

#include "weightstore/byte_source.h"

namespace weightstore::io {

// Eight bytes a step by table, on any processor.
std::uint32_t crc32c_by_table(ConstBytes bytes, std::uint32_t crc);

// True when this processor has the instruction that crc32c_by_instruction() is made of.
bool has_crc32c_instruction();
std::uint32_t crc32c_by_instruction(ConstBytes bytes, std::uint32_t crc);

}  // namespace weightstore::io
