#pragma once

#include <memory>

#include "weightstore/byte_source.h"

namespace weightstore::python {

// Bytes and their owner as a Python object with a one-dimensional buffer. numpy arrays and torch tensors made from it
// hold it, and so keep a mapping alive whatever happens to the file object. Immutable; the bytes are not, unless
// read_only.
class Memory {
 public:
  explicit Memory(SharedBytes view);
  explicit Memory(SharedMutableBytes view);

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool read_only() const { return read_only_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  std::byte* data_;
  std::size_t size_;
  bool read_only_;
  std::shared_ptr<const void> owner_;
};

// New memory of our own: huge pages when it is large, 64-byte aligned always. Throws Error(kMemory) when
// so much is not available.
Memory allocate_memory(std::size_t size);

// The same for a caller that writes all of it: what it holds may be of an earlier result (io/recycled_memory.h).
Memory allocate_result(std::size_t size);

}  // namespace weightstore::python
