#pragma once

// The array in a compressed member of an archive, inflated as it is read.

#include <cstdint>
#include <memory>

#include "weightstore/byte_source.h"

namespace weightstore::numpy {

// Where a compressed member is, and what it inflates to.
struct CompressedMember {
  std::uint64_t begin = 0;  // of the compressed bytes, in the file
  std::uint64_t end = 0;
  std::uint64_t size = 0;  // inflated
};

// The member's bytes from `skipped` on. Takes no memory for the content: a read inflates from the nearest place before
// it that an earlier read has passed, 4 MiB away at most, into the caller's memory. Such a place takes 34 KiB. Reads
// take turns. Throws Error(kCorrupt) for a member that is damaged, or inflates to another size.
std::shared_ptr<const ByteSource> inflated_source(std::shared_ptr<const ByteSource> file,
                                                  const CompressedMember& member, std::uint64_t skipped);

// The bytes of `content` in memory, read all at once when the first of them is asked for, and kept as long as the
// source lives. For elements that are read in another order than they are stored in. Throws Error(kLimit) then when
// there are more than `most`.
std::shared_ptr<const ByteSource> kept_source(std::shared_ptr<const ByteSource> content, std::uint64_t most);

// Memory that one of these sources takes before it is read, with its place in a TensorTable.
std::uint64_t inflated_source_bytes();
std::uint64_t kept_source_bytes();

}  // namespace weightstore::numpy
