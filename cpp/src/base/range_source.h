#pragma once

// A part of a source as a source of its own, for files that hold other files.

#include <cstdint>
#include <memory>

#include "weightstore/byte_source.h"

namespace weightstore {

// The bytes [begin, begin + size) of `whole`. Throws Error(kCorrupt) when it does not have them. Errors name the whole
// source, with offsets in the part.
std::shared_ptr<const ByteSource> range_source(std::shared_ptr<const ByteSource> whole, std::uint64_t begin,
                                               std::uint64_t size);

}  // namespace weightstore
