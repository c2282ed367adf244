#pragma once

// Streams a planned file to disk: header, gaps and tensors in ascending order, each tensor from its own memory.

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
  bool durable = true;     // the data will be synced: write around the page cache where that is faster
  bool checksums = false;  // compute the crc32c of every tensor on the way
  Progress progress;
};

// Writes `layout` through `file`, preallocated. Returns the crc32c of each tensor (by number; empty when not asked
// for). Extra memory: a few blocks, whatever the tensors' sizes. Throws Error(kIo) with errno and path on any failed or
// short write, Error(kInvalidArgument) naming a tensor whose producer does not have the planned size.
std::vector<std::uint32_t> stream_file(const OutputFile& file, const Layout& layout, std::span<const NewTensor> tensors,
                                       const StreamOptions& options, FileOps& ops);

// Replaces the first header.size() bytes, after stream_file(): how checksums get into a header that comes before them.
void rewrite_header(const OutputFile& file, const std::string& header, FileOps& ops);

// The same file in memory.
std::vector<std::byte> stream_memory(const Layout& layout, std::span<const NewTensor> tensors,
                                     const StreamOptions& options, std::vector<std::uint32_t>* checksums);

}  // namespace weightstore::io
