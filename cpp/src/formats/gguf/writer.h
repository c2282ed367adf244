#pragma once

#include "weightstore/file_contents.h"
#include "weightstore/layout.h"

namespace weightstore::gguf {

// Plans a file of version 3, little-endian, with the tensors in the order of addition. The metadata are the typed ones,
// then those that are only text, as STRING. `general.alignment` sets the alignment of the data. Throws
// Error(kInvalidArgument) for contents that a GGUF file cannot hold: a type that GGUF does not have, a name of more
// than 63 bytes, more than 4 dimensions. Throws Error(kLimit) for a header that the reader would refuse.
Layout plan(const FileContents& contents);

}  // namespace weightstore::gguf
