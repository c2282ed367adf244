#pragma once

// Writes a planned file: header, gaps and tensors in ascending order, each tensor from its own memory.

#include <cstdint>
#include <span>
#include <vector>

#include "io/file_ops.h"
#include "io/output_file.h"
#include "weightstore/file_contents.h"
#include "weightstore/layout.h"
#include "weightstore/progress.h"

namespace weightstore::io {

struct StreamOptions {
  bool durable = true;     // the data will be synced, so writes may bypass the page cache where that is faster
  bool checksums = false;  // compute the crc32c of every tensor while it is written
  Progress progress;
};

// Writes `layout` to `file`, which it preallocates. Returns the crc32c of each tensor by number; empty when
// `options.checksums` is false. Needs a few chunks of extra memory, however large the tensors are. Throws Error(kIo)
// with errno and path when a write fails or is short, and Error(kInvalidArgument) that names a tensor whose producer
// does not have the planned size.
std::vector<std::uint32_t> stream_file(const OutputFile& file, const Layout& layout, std::span<const NewTensor> tensors,
                                       const StreamOptions& options, FileOps& ops);

// Replaces the first header.size() bytes after stream_file(). This is how checksums get into the header, which is
// written before they are known.
void rewrite_header(const OutputFile& file, const std::string& header, FileOps& ops);

}  // namespace weightstore::io
