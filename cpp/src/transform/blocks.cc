// Tensors that are quantized in blocks, on several threads and as producers.

#include <algorithm>
#include <string>
#include <utility>

#include "base/checked.h"
#include "io/parallel.h"
#include "kernels/blocks/block_numbers.h"
#include "kernels/decode_as.h"
#include "transform/decode_parallel.h"
#include "transform/threads.h"
#include "transform/unit_bytes.h"
#include "weightstore/error.h"
#include "weightstore/transform.h"

namespace weightstore {
namespace {

// On several threads.
void quantize_blocks(ConstBytes in, DType to, MutableBytes out) {
  constexpr std::size_t kChunkBlocks = 8u << 10;
  const std::size_t to_bytes = block_of(to)->bytes;
  const std::size_t from_bytes = block_of(to)->elements * sizeof(float);
  const std::size_t blocks = in.size() / from_bytes;
  io::parallel_for((blocks + kChunkBlocks - 1) / kChunkBlocks, transform::threads_for(in.size(), 0),
                   [&](std::size_t chunk) {
                     const std::size_t first = chunk * kChunkBlocks;
                     const std::size_t count = std::min(kChunkBlocks, blocks - first);
                     kernels::quantize(in.subspan(first * from_bytes, count * from_bytes), to,
                                       out.subspan(first * to_bytes, count * to_bytes));
                   });
}

}  // namespace

void dequantize(ConstBytes payload, DType from, DType to, std::uint64_t first, MutableBytes out, unsigned threads) {
  const kernels::BlockNumbers numbers(from, payload.size());
  kernels::check_output(numbers, to, first, out);
  transform::decode_parallel(numbers, payload.data(), to, first, out, threads);
}

std::shared_ptr<ByteProducer> dequantized_bytes(std::shared_ptr<ByteProducer> bytes, DType from, DType to) {
  kernels::check_type(to);
  const kernels::BlockNumbers numbers(from, bytes->size());
  if (!checked_mul(numbers.size(), sizeof(double))) {
    throw Error(ErrorCode::kLimit, "its numbers would have more than 2^64 bytes");
  }
  const BlockSize block = *block_of(from);
  auto made =
      transform::unit_bytes(std::move(bytes), block.bytes, block.elements * sizeof(float),
                            [from](ConstBytes in, MutableBytes out) { dequantize(in, from, DType::kF32, 0, out); });
  return cast_bytes(std::move(made), DType::kF32, to);
}

std::shared_ptr<ByteProducer> quantized_bytes(std::shared_ptr<ByteProducer> bytes, DType to) {
  const auto block = can_quantize(to) ? block_of(to) : std::nullopt;
  if (!block || bytes->size() % (block->elements * sizeof(float)) != 0) {
    throw Error(
        block ? ErrorCode::kInvalidArgument : ErrorCode::kUnsupported,
        block ? std::to_string(bytes->size()) + " bytes of F32 are not whole blocks of " + std::string(name_of(to))
              : "numbers are quantized to Q8_0 or Q4_0, not " + std::string(name_of(to)));
  }
  return transform::unit_bytes(std::move(bytes), block->elements * sizeof(float), block->bytes,
                               [to](ConstBytes in, MutableBytes out) { quantize_blocks(in, to, out); });
}

}  // namespace weightstore
