#include <string>

#include "base/checked.h"
#include "io/copy_bytes.h"
#include "transform/blocks.h"
#include "transform/cast_kernels.h"
#include "weightstore/error.h"
#include "weightstore/transform.h"

namespace weightstore {
namespace {

constexpr std::uint64_t kBlockNumbers = 256u << 10;

DType stored_as(DType dtype) { return dtype == DType::kFlex32 ? DType::kF32 : dtype; }

bool is_float(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || stored_as(dtype) == DType::kF32 || dtype == DType::kF64;
}

}  // namespace

transform::CastKernel transform::cast_kernel(DType from, DType to) {
  const CastKernel kernel = vector_cast(stored_as(from), stored_as(to));
  return kernel != nullptr ? kernel : portable_cast(stored_as(from), stored_as(to));
}

bool can_cast(DType from, DType to) { return is_float(from) && is_float(to); }

std::uint64_t cast_size(std::uint64_t bytes, DType from, DType to) {
  if (!can_cast(from, to)) {
    throw Error(ErrorCode::kUnsupported, "cannot convert " + std::string(name_of(from)) + " to " +
                                             std::string(name_of(to)) + "; casts are between F16, BF16, F32 and F64");
  }
  const std::uint64_t item = bits_of(from) / 8;
  const auto size = checked_mul(bytes / item, bits_of(to) / 8);
  if (bytes % item != 0 || !size) {
    throw Error(ErrorCode::kInvalidArgument,
                std::to_string(bytes) + " bytes do not make a whole number of " + std::string(name_of(from)));
  }
  return *size;
}

void cast(ConstBytes in, DType from, DType to, MutableBytes out, unsigned threads) {
  const std::uint64_t size = cast_size(in.size(), from, to);
  if (out.size() != size) {
    throw Error(ErrorCode::kInvalidArgument, "the numbers need " + std::to_string(size) + " bytes as " +
                                                 std::string(name_of(to)) + ", the output has " +
                                                 std::to_string(out.size()));
  }
  const std::size_t from_bytes = bits_of(from) / 8;
  const std::size_t to_bytes = bits_of(to) / 8;
  const std::uint64_t count = in.size() / from_bytes;
  const transform::CastKernel kernel = transform::cast_kernel(from, to);
  const std::uint64_t blocks = (count + kBlockNumbers - 1) / kBlockNumbers;
  transform::for_blocks(blocks, transform::threads_for(in.size() + size, threads), [&](std::uint64_t block) {
    const std::uint64_t first = block * kBlockNumbers;
    const std::uint64_t numbers = std::min(kBlockNumbers, count - first);
    const std::byte* begin = in.data() + first * from_bytes;
    std::byte* target = out.data() + first * to_bytes;
    if (kernel != nullptr) {
      kernel(begin, target, numbers);
    } else {
      io::copy_bytes(target, begin, numbers * to_bytes);
    }
  });
}

}  // namespace weightstore
