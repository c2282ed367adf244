#pragma once

// Takes the bytes of a file, from front to back.

#include <cstddef>

#include "weightstore/byte_source.h"

namespace weightstore {

// Used by one thread at a time. A sink that is destroyed before finish() leaves the file incomplete. Every function can
// throw Error(kIo).
class FileSink {
 public:
  virtual ~FileSink() = default;

  // append() gets at most this many bytes at a time, and none that cross a multiple of it.
  static constexpr std::size_t kChunkBytes = std::size_t{4} << 20;

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

}  // namespace weightstore
