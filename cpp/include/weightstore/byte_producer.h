#pragma once

// The write side's one input: a length, and "fill this range into this buffer".

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "weightstore/byte_source.h"

namespace weightstore {

// The bytes of one tensor, produced when the writer reaches them. The writer calls fill() from one thread, with
// ascending, adjacent ranges that cover [0, size()) once; planning calls size() only, so a producer need not have its
// bytes, or the memory for them, before that.
class ByteProducer {
 public:
  virtual ~ByteProducer() = default;

  virtual std::uint64_t size() const = 0;

  // Writes bytes [offset, offset + out.size()) to `out`. Throws to abandon the write.
  virtual void fill(std::uint64_t offset, MutableBytes out) = 0;

  // All bytes at once where they lie in memory already: the writer then takes them from there, without a copy.
  virtual std::optional<ConstBytes> resident() const { return std::nullopt; }

  // Called once after the last fill() (or not at all, when the write failed), so that a producer can give back memory.
  virtual void finished() {}
};

// Bytes that stay where they are until the write is done. A null pointer with a size is Error(kInvalidArgument).
std::shared_ptr<ByteProducer> resident_bytes(ConstBytes bytes, std::shared_ptr<const void> owner = nullptr);

// `fill` is called as ByteProducer::fill is.
std::shared_ptr<ByteProducer> deferred_bytes(std::uint64_t size, std::function<void(std::uint64_t, MutableBytes)> fill);

// A range of a source, read as it is written: the producer behind conversions.
std::shared_ptr<ByteProducer> source_bytes(std::shared_ptr<const ByteSource> source, std::uint64_t offset,
                                           std::uint64_t size);

// An n-dimensional array in memory, gathered into row-major order block by block.
struct StridedArray {
  const std::byte* data = nullptr;  // address of element [0, 0, ...]; null only for an array without elements
  std::size_t item_bytes = 1;       // 1 to 16
  std::vector<std::uint64_t> shape;
  std::vector<std::int64_t> byte_strides;  // any sign, 0 for broadcast dimensions
  // Lazy sign changes, resolved while gathering: the sign bit of each `sign_bytes`-wide float component is flipped, of
  // every component (negate) or of every second one (conjugate); both together leave the imaginary part as it is.
  std::size_t sign_bytes = 0;  // 0: no sign change
  bool negate = false;
  bool conjugate = false;
};
std::shared_ptr<ByteProducer> strided_bytes(StridedArray array, std::shared_ptr<const void> owner = nullptr);

}  // namespace weightstore
