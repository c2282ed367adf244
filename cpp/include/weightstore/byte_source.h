#pragma once

// Where bytes are read from: a file, memory, static data, anything with positions.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace weightstore {

using ConstBytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// Bytes and whatever keeps them alive: a mapping, a buffer, a Python object. Copies share the owner.
struct SharedBytes {
  ConstBytes bytes;
  std::shared_ptr<const void> owner;  // null for static data
};

// The same for memory that may be written to.
struct SharedMutableBytes {
  MutableBytes bytes;
  std::shared_ptr<void> owner;
};

// Positional reads. Immutable and thread-safe: any number of threads may read at once, no call moves a position that
// another could see.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // Bytes in the source, fixed when it was opened.
  virtual std::uint64_t size() const = 0;

  // Fills all of `out` from `offset`. Throws Error(kIo) when the range is not there (any more).
  virtual void read_at(std::uint64_t offset, MutableBytes out) const = 0;

  // The range without a copy, or nullopt when this source cannot do that. The range must lie inside the source.
  virtual std::optional<SharedBytes> view(std::uint64_t offset, std::uint64_t length) const;

  // The range as memory that may be written to without changing the source (copy-on-write), or nullopt.
  virtual std::optional<SharedMutableBytes> private_view(std::uint64_t offset, std::uint64_t length) const;

  // A file descriptor that may be read with pread(2) while the source lives, or -1. Bulk reads use it to bypass or to
  // ask about the page cache.
  virtual int descriptor() const { return -1; }

  // For messages: the path, or a description such as "<memory>".
  virtual std::string name() const = 0;

  // About a range of which view() is in use. populate() brings it into memory, so that touching it does not wait for
  // the disk; throws Error(kIo) when the range is not there any more, where touching it would raise SIGBUS. discard()
  // gives its memory back where the source can bring it in again; views stay valid. Sources that are memory do nothing.
  virtual void populate(std::uint64_t offset, std::uint64_t length) const;
  virtual void discard(std::uint64_t offset, std::uint64_t length) const noexcept;
};

// Memory that `owner` keeps alive (null: static data, or memory that outlives the source). Views point into it.
std::shared_ptr<const ByteSource> memory_source(ConstBytes bytes, std::shared_ptr<const void> owner = nullptr,
                                                std::string name = "<memory>");

}  // namespace weightstore
