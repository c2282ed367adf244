#pragma once

// The ways in which stream_file() writes the bytes of a file, from front to back.

#include <cstdint>
#include <memory>
#include <string>

#include "base/file_sink.h"
#include "io/file_ops.h"

namespace weightstore::io {

// Where a sink begins in an open file, and how large the file will be.
struct FileRange {
  int fd;
  std::uint64_t begin;  // a multiple of kChunkBytes
  std::uint64_t file_size;
  std::string path;
};

// Writes through the page cache, on the calling thread.
std::unique_ptr<FileSink> buffered_sink(FileRange range, FileOps& ops);

// Bypasses the page cache, with recycled aligned buffers and two threads that write. Null where the file system
// refuses.
std::unique_ptr<FileSink> direct_sink(FileRange range, FileOps& ops);

// Writes through the page cache as long as that is faster than the device.
std::unique_ptr<FileSink> adaptive_sink(FileRange range, FileOps& ops);

}  // namespace weightstore::io
