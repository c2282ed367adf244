#pragma once

// The input of a writer: it has a size, and it fills buffers with its bytes.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "weightstore/byte_source.h"

namespace weightstore {

// The bytes of one tensor, produced when the writer needs them. The writer calls fill() from one thread, with
// ascending, adjacent ranges that cover [0, size()) once. Planning a file calls only size(), so a producer does not
// need its bytes, or memory for them, before the first fill().
class ByteProducer {
 public:
  virtual ~ByteProducer() = default;

  virtual std::uint64_t size() const = 0;

  // Copies the bytes [offset, offset + out.size()) to `out`. An exception cancels the write.
  virtual void fill(std::uint64_t offset, MutableBytes out) = 0;

  // All bytes, if they are in memory already. The writer then writes from there, without a copy.
  virtual std::optional<ConstBytes> resident() const { return std::nullopt; }

  // The writer calls this once after the last fill(), so that the producer can free memory. It does not call this when
  // the write fails.
  virtual void finished() {}
};

// Bytes in memory that stays valid until the write is complete. Throws Error(kInvalidArgument) for a null pointer with
// a size.
std::shared_ptr<ByteProducer> resident_bytes(ConstBytes bytes, std::shared_ptr<const void> owner = nullptr);

// Bytes that `fill` produces. It is called in the same way as ByteProducer::fill().
std::shared_ptr<ByteProducer> deferred_bytes(std::uint64_t size, std::function<void(std::uint64_t, MutableBytes)> fill);

// A range of a source, read while it is written. Conversions use this producer.
std::shared_ptr<ByteProducer> source_bytes(std::shared_ptr<const ByteSource> source, std::uint64_t offset,
                                           std::uint64_t size);

// An n-dimensional array in memory. The producer gathers it into row-major order, block by block.
struct StridedArray {
  const std::byte* data = nullptr;  // address of element [0, 0, ...]; null only for an array without elements
  std::size_t item_bytes = 1;       // 1 to 16
  std::vector<std::uint64_t> shape;
  std::vector<std::int64_t> byte_strides;  // any sign, 0 for broadcast dimensions
  // Sign changes, applied while gathering. The producer flips the sign bit of floats that are `sign_bytes` wide: of all
  // of them (negate), or of every second one (conjugate). Both together change only the real parts.
  std::size_t sign_bytes = 0;  // 0: no sign change
  bool negate = false;
  bool conjugate = false;
};
std::shared_ptr<ByteProducer> strided_bytes(StridedArray array, std::shared_ptr<const void> owner = nullptr);

}  // namespace weightstore
