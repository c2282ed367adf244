#pragma once

// Where bytes are read from: a file, memory, static data, or anything else that can be read at a position.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace weightstore {

using ConstBytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

// Bytes, and the owner that keeps them alive: a mapping, a buffer, a Python object. Copies share the owner.
struct SharedBytes {
  ConstBytes bytes;
  std::shared_ptr<const void> owner;  // null for static data
};

// The same for memory that may be written to.
struct SharedMutableBytes {
  MutableBytes bytes;
  std::shared_ptr<void> owner;
};

// Reads at given positions. Immutable and thread-safe: any number of threads can read at once, and there is no current
// position that a call could move.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // The size in bytes. It does not change after the source was opened.
  virtual std::uint64_t size() const = 0;

  // Reads out.size() bytes at `offset`. Throws Error(kIo) when the range does not exist, or no longer exists.
  virtual void read_at(std::uint64_t offset, MutableBytes out) const = 0;

  // The range without a copy, or nullopt when this source has no views. The range must lie inside the source.
  virtual std::optional<SharedBytes> view(std::uint64_t offset, std::uint64_t length) const;

  // The range as copy-on-write memory, which can be written without changing the source; or nullopt.
  virtual std::optional<SharedMutableBytes> private_view(std::uint64_t offset, std::uint64_t length) const;

  // A file descriptor for pread(2), valid while the source lives; or -1. Bulk reads use it to bypass the page cache,
  // and to ask what is in the cache.
  virtual int descriptor() const { return -1; }

  // For messages: the path, or a description such as "<memory>".
  virtual std::string name() const = 0;

  // For ranges whose view() is in use. Sources that are memory do nothing here.
  // populate() brings the range into memory, so that accesses do not wait for the disk. It throws Error(kIo) when the
  // range no longer exists; an access would then raise SIGBUS.
  // discard() gives the memory back to the system if the source can read it again. Views stay valid.
  virtual void populate(std::uint64_t offset, std::uint64_t length) const;
  virtual void discard(std::uint64_t offset, std::uint64_t length) const noexcept;
};

// A source over memory that `owner` keeps alive. `owner` is null for static data, or for memory that outlives the
// source. Views point into the memory.
std::shared_ptr<const ByteSource> memory_source(ConstBytes bytes, std::shared_ptr<const void> owner = nullptr,
                                                std::string name = "<memory>");

}  // namespace weightstore
