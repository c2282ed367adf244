#pragma once

// GGUF files. docs/formats.md, "GGUF", says what is read.

#include <memory>

#include "formats/format_spec.h"

namespace weightstore::gguf {

// The tensors of a file, with their dimensions in row-major order (the file has the innermost one first), and its
// metadata. A tensor is a range of `source`; those of a big-endian file have sources of their own, which turn numbers
// around. Takes at most 24 times the size of the header and 64 KiB of memory. Throws kCorrupt, kLimit or kUnsupported.
OpenedFile open(std::shared_ptr<const ByteSource> source, const ReadOptions& options);

}  // namespace weightstore::gguf
