#pragma once

// From two types known at run time to the kernel that was compiled for them.

#include "kernels/cast_kernels.h"

namespace weightstore::kernels {

template <DType kType>
inline constexpr std::size_t kBytes = kType == DType::kF64   ? 8
                                      : kType == DType::kF32 ? 4
                                                             : 2;

template <template <DType, DType> class Kernel, DType kFrom>
CastKernel kernel_from(DType to) {
  switch (to) {
    case DType::kF16:
      return kFrom == DType::kF16 ? nullptr : Kernel<kFrom, DType::kF16>::run;
    case DType::kBF16:
      return kFrom == DType::kBF16 ? nullptr : Kernel<kFrom, DType::kBF16>::run;
    case DType::kF32:
      return kFrom == DType::kF32 ? nullptr : Kernel<kFrom, DType::kF32>::run;
    case DType::kF64:
      return kFrom == DType::kF64 ? nullptr : Kernel<kFrom, DType::kF64>::run;
    default:
      return nullptr;
  }
}

// Kernel<from, to>::run, or null when there is nothing to convert or no such kernel.
template <template <DType, DType> class Kernel>
CastKernel kernel_for(DType from, DType to) {
  switch (from) {
    case DType::kF16:
      return kernel_from<Kernel, DType::kF16>(to);
    case DType::kBF16:
      return kernel_from<Kernel, DType::kBF16>(to);
    case DType::kF32:
      return kernel_from<Kernel, DType::kF32>(to);
    case DType::kF64:
      return kernel_from<Kernel, DType::kF64>(to);
    default:
      return nullptr;
  }
}

}  // namespace weightstore::kernels
