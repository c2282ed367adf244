#include <cstring>
#include <string>

#include "base/checked.h"
#include "kernels/cast_kernels.h"
#include "weightstore/error.h"
#include "weightstore/kernels.h"

namespace weightstore {
namespace {

DType stored_as(DType dtype) { return dtype == DType::kFlex32 ? DType::kF32 : dtype; }

bool is_float(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || stored_as(dtype) == DType::kF32 || dtype == DType::kF64;
}

}  // namespace

kernels::CastKernel kernels::cast_kernel(DType from, DType to) {
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

void kernels::check_cast(ConstBytes in, DType from, DType to, ConstBytes out) {
  const std::uint64_t size = cast_size(in.size(), from, to);
  if (out.size() != size) {
    throw Error(ErrorCode::kInvalidArgument, "the numbers need " + std::to_string(size) + " bytes as " +
                                                 std::string(name_of(to)) + ", the output has " +
                                                 std::to_string(out.size()));
  }
}

void kernels::cast(ConstBytes in, DType from, DType to, MutableBytes out) {
  check_cast(in, from, to, out);
  if (in.empty()) return;
  if (const CastKernel kernel = cast_kernel(from, to)) {
    kernel(in.data(), out.data(), in.size() / (bits_of(from) / 8));
  } else {
    std::memcpy(out.data(), in.data(), in.size());
  }
}

}  // namespace weightstore
