#pragma once

// Reads many byte ranges into memory, with several threads and the cheapest system calls.

#include <cstdint>
#include <span>
#include <string_view>

#include "io/file_ops.h"
#include "weightstore/byte_source.h"
#include "weightstore/progress.h"
#include "weightstore/read_options.h"

namespace weightstore::io {

// Bytes of a source, and the memory for them.
struct CopyRange {
  const ByteSource* source;
  std::uint64_t offset;
  MutableBytes out;
  std::string_view name;  // of the tensor, for progress and errors
};

struct CopyOptions {
  unsigned threads = 0;  // 0: as many as make the copy faster
  DirectIo direct = DirectIo::kAuto;
  FileOps& ops = system_file_ops();  // for direct reads; sources bring their own for all others
  // If every `out` lies in memory of allocate_bulk() that nobody has written to: that memory. Otherwise empty.
  std::span<const MutableBytes> fresh = {};
};

// Fills `out` of every range. Ranges of files that are not in the page cache are read with O_DIRECT through recycled
// buffers, where the file system allows it. All other ranges are read with pread(2) directly into `out`, or copied if
// the source is memory. Needs 4 MiB of extra memory per thread, and about 40 bytes per range and per 4 MiB of data. If
// there are only a few MiB, the calling thread reads them; otherwise other threads do. Throws the first error; the
// outputs are then undefined.
void parallel_copy(std::span<const CopyRange> ranges, const CopyOptions& options, const Progress& progress);

}  // namespace weightstore::io
