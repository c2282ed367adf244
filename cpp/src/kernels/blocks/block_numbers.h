#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/blocks/decode_blocks.h"
#include "kernels/number_decoder.h"
#include "weightstore/dtype.h"

namespace weightstore::kernels {

// The numbers of a payload that is quantized in blocks.
class BlockNumbers final : public NumberDecoder {
 public:
  // Throws Error(kUnsupported) for a type that is not dequantized, and Error(kInvalidArgument) when `length` is not a
  // whole number of blocks.
  BlockNumbers(DType dtype, std::uint64_t length);

  std::uint64_t size() const override { return length_ / block_.bytes * block_.elements; }
  // Never bypasses the caches: the kernel has just cleared the pages of a large output, and they are still there.
  void decode(const std::byte* payload, std::uint64_t first, std::size_t count, float* out, bool) const override;

 private:
  DecodeBlocks decode_;
  BlockSize block_;
  std::uint64_t length_;
};

}  // namespace weightstore::kernels
