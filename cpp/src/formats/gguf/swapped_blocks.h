#pragma once

// Quantized tensors of big-endian files.

#include <cstdint>
#include <memory>

#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"

namespace weightstore::gguf {

// True when a block of this type has numbers of several bytes, which swapped_blocks() turns around. The codes of IQ1 to
// IQ3, Q8_1 and Q8_K are not defined for big-endian machines; such blocks stay as they are in the file.
bool has_swapped_blocks(DType dtype);

// The `size` bytes of `file` from `begin` on, which are blocks of this type, as a little-endian file has them.
std::shared_ptr<const ByteSource> swapped_blocks(std::shared_ptr<const ByteSource> file, std::uint64_t begin,
                                                 std::uint64_t size, DType dtype);

}  // namespace weightstore::gguf
