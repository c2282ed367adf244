#pragma once

// Where stream_file() puts the bytes of a file, front to back.

#include <cstdint>
#include <memory>
#include <string>

#include "io/file_ops.h"
#include "weightstore/byte_source.h"

namespace weightstore::io {

// Thread-compatible. A sink that is destroyed before finish() leaves the file incomplete.
class FileSink {
 public:
  virtual ~FileSink() = default;

  // Memory for the bytes that come next; never empty.
  virtual MutableBytes space() = 0;
  // The first `count` bytes of space() are filled.
  virtual void advance(std::size_t count) = 0;
  // Bytes that come next and lie in memory already. They may be written from there, and later: until holds_memory() is
  // false again they must stay as they are.
  virtual void append(ConstBytes bytes) = 0;
  virtual bool holds_memory() const { return false; }
  // Between two blocks of the file (multiples of kBlockBytes): returns when everything so far is written, so that
  // another sink may go on from here.
  virtual void flush() {}
  // Returns when everything is written and the file has its length. Throws Error(kIo), as all others do.
  virtual void finish() = 0;
};

// A place in an open file: where a sink begins, and how long the file will be in the end.
struct FileRange {
  int fd;
  std::uint64_t begin;  // a multiple of kBlockBytes
  std::uint64_t file_size;
  std::string path;
};

// Through the page cache, on the calling thread.
std::unique_ptr<FileSink> buffered_sink(FileRange range, FileOps& ops);

// Around the page cache, through a ring of aligned blocks and two writing threads; null where the file system refuses.
std::unique_ptr<FileSink> direct_sink(FileRange range, FileOps& ops);

// Through the page cache as long as that is faster than the device.
std::unique_ptr<FileSink> adaptive_sink(FileRange range, FileOps& ops);

}  // namespace weightstore::io
