#pragma once

// An array in memory, read in row-major order from any position.

#include <cstdint>
#include <memory>
#include <optional>

#include "base/strided/strided_reader.h"
#include "weightstore/byte_producer.h"
#include "weightstore/byte_source.h"

namespace weightstore {

// Unlike the producer that strided_bytes() makes of it, this may be read by any number of threads at once.
class StridedMemory {
 public:
  // Throws Error(kInvalidArgument) for strides or signs that do not fit, and kLimit for more than 2^64 bytes. `owner`
  // keeps the memory alive; null for memory that outlives this object.
  explicit StridedMemory(const StridedArray& array, std::shared_ptr<const void> owner = nullptr);

  std::uint64_t size() const { return reader_.size(); }
  // All bytes, if they lie in row-major order already.
  std::optional<ConstBytes> resident() const;
  // Gathers the bytes [offset, offset + out.size()).
  void read(std::uint64_t offset, MutableBytes out) const { reader_.read(*memory_, offset, out); }

 private:
  const std::byte* first_;
  std::shared_ptr<const ByteSource> memory_;
  StridedReader reader_;
};

}  // namespace weightstore
