#include "kernels/blocks/block_numbers.h"

#include <algorithm>
#include <string>

#include "weightstore/error.h"
#include "weightstore/kernels.h"

namespace weightstore {

bool can_dequantize(DType dtype) { return kernels::portable_decoder(dtype) != nullptr; }

namespace kernels {
namespace {

constexpr std::size_t kMostElements = 256;  // of a block

}  // namespace

BlockNumbers::BlockNumbers(DType dtype, std::uint64_t length)
    : decode_(block_decoder(dtype)), block_(block_of(dtype).value_or(BlockSize{1, 1})), length_(length) {
  const std::string name(name_of(dtype));
  if (decode_ == nullptr) {
    throw Error(ErrorCode::kUnsupported, block_of(dtype)
                                             ? name + " is not dequantized by this library; it is carried as bytes"
                                             : name + " is not quantized in blocks");
  }
  if (length % block_.bytes != 0) {
    throw Error(ErrorCode::kInvalidArgument, std::to_string(length) + " bytes are not a whole number of blocks of " +
                                                 name + ", which have " + std::to_string(block_.bytes));
  }
}

void BlockNumbers::decode(const std::byte* payload, std::uint64_t first, std::size_t count, float* out, bool) const {
  while (count > 0) {
    const std::byte* block = payload + first / block_.elements * block_.bytes;
    const auto inside = static_cast<std::size_t>(first % block_.elements);
    std::size_t done = count / block_.elements * block_.elements;
    if (inside == 0 && done != 0) {
      decode_(block, done / block_.elements, out);
    } else {  // part of a block
      alignas(32) float numbers[kMostElements];
      decode_(block, 1, numbers);
      done = std::min<std::size_t>(count, block_.elements - inside);
      std::copy_n(numbers + inside, done, out);
    }
    first += done;
    count -= done;
    out += done;
  }
}

}  // namespace kernels
}  // namespace weightstore
