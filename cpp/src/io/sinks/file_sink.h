#pragma once

// The ways in which stream_file() writes the bytes of a file, from front to back.

#include <cstdint>
#include <memory>
#include <string>

#include "io/file_ops.h"
#include "weightstore/byte_source.h"

namespace weightstore::io {

// Used by one thread at a time. A sink that is destroyed before finish() leaves the file incomplete. Every function can
// throw Error(kIo).
class FileSink {
 public:
  virtual ~FileSink() = default;

  // Memory for the next bytes of the file; never empty.
  virtual MutableBytes space() = 0;
  // Call this after filling the first `count` bytes of space().
  virtual void advance(std::size_t count) = 0;
  // Appends bytes that are in memory already. The sink may write them later and without a copy: do not change them
  // until holds_memory() is false.
  virtual void append(ConstBytes bytes) = 0;
  virtual bool holds_memory() const { return false; }
  // Returns when everything so far is written, so that another sink can continue. Call it only at a multiple of
  // kChunkBytes.
  virtual void flush() {}
  // Returns when everything is written and the file has its final size.
  virtual void finish() = 0;
};

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
