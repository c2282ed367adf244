#pragma once

// Many byte ranges into memory, with several threads and the cheapest system calls.

#include <cstdint>
#include <span>
#include <string_view>

#include "io/file_ops.h"
#include "weightstore/byte_source.h"
#include "weightstore/progress.h"
#include "weightstore/read_options.h"

namespace weightstore::io {

struct CopyJob {
  const ByteSource* source;
  std::uint64_t offset;
  MutableBytes out;
  std::string_view name;  // for progress and errors: the tensor
};

struct CopyOptions {
  unsigned threads = 0;  // 0: as many as gain something
  DirectIo direct = DirectIo::kAuto;
  FileOps* ops = nullptr;  // for direct reads; sources bring their own for all others. Null: the operating system.
  // Memory of allocate_bulk() that nothing was written to, and in which every `out` lies; empty when that is not so.
  std::span<const MutableBytes> fresh = {};
};

// Fills every job's `out`. Ranges of files that are not in the page cache are read with O_DIRECT through a ring of
// ready buffers, where the file system can; all others with pread(2) straight into `out`, or by copying where the
// source is memory. Extra memory: 4 MiB a thread, and about 40 bytes for every job and every 4 MiB. A few MiB are read
// on the calling thread; otherwise sources are read from other threads. First error wins; outputs are undefined then.
void parallel_copy(std::span<const CopyJob> jobs, const CopyOptions& options, const Progress& progress);

}  // namespace weightstore::io
