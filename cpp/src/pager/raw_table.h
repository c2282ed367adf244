#pragma once

// The tensors of a raw source, which has no header that describes them.

#include <memory>
#include <span>

#include "weightstore/pager.h"

namespace weightstore::pager {

// A table of these entries. Its tensors are one-dimensional and of type U8, and numbered by offset. Throws OffloadEof
// that names all entries which end after the source, and Error(kInvalidArgument) for a duplicate name.
TensorTable make_raw_table(std::shared_ptr<const ByteSource> source, std::span<const NamedEntry> entries);

}  // namespace weightstore::pager
