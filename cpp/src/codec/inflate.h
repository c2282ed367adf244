#pragma once

// Decompresses DEFLATE data (RFC 1951): in one call for small records, or as a stream for large ones.

#include <cstdint>
#include <memory>

#include "weightstore/byte_source.h"

namespace weightstore {

// Decompresses `compressed` into `out`. Throws Error(kCorrupt) when the result does not have exactly out.size() bytes,
// when the data is malformed, and when bytes follow its last block. Allocates nothing: the caller decides how large
// `out` may be, before it allocates `out`.
void inflate(ConstBytes compressed, MutableBytes out);

// Compressed data: the bytes [begin, end) of a source. The source must outlive the functions and streams that read it.
struct Deflated {
  const ByteSource& source;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Decompresses the first out.size() bytes, and does not read or check the rest. Throws Error(kCorrupt) when the data
// ends or is malformed before that. Allocates out.size() bytes and about 1 KiB.
void inflate_prefix(const Deflated& compressed, MutableBytes out);

// Decompresses data from its beginning to its end, in pieces of any size. Uses about 100 KiB of memory, however large
// the data is. Used by one thread at a time.
class InflateStream {
 public:
  explicit InflateStream(const Deflated& compressed);
  ~InflateStream();
  InflateStream(InflateStream&&) noexcept;

  // The number of decompressed bytes that were read or skipped.
  std::uint64_t position() const;
  // Read the next bytes into `out`, or skip them. Throw Error(kCorrupt) when the data ends too early or is malformed.
  // After an error the stream cannot be used any more.
  void read(MutableBytes out);
  void skip(std::uint64_t count);
  // Throws Error(kCorrupt) unless the decompressed data ends at position() and no bytes follow the compressed data.
  void expect_end();

  // The state of the stream at a position. go_to() returns to that position. A bookmark takes about 34 KiB.
  struct Bookmark;
  std::shared_ptr<const Bookmark> bookmark() const;
  void go_to(const Bookmark& bookmark);

 private:
  class Steps;
  std::unique_ptr<Steps> steps_;
};

}  // namespace weightstore
