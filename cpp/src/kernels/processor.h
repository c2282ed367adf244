#pragma once

// What the processor can do that the compiler was not told.

#if defined(__x86_64__)

#include <cpuid.h>

namespace weightstore::kernels {

// Not every compiler's __builtin_cpu_supports() knows F16C; where the system saves AVX2's registers, F16C needs no
// more.
inline bool has_avx2_and_f16c() {
  static const bool has = [] {
    unsigned eax, ebx, ecx, edx;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  }();
  return has;
}

}  // namespace weightstore::kernels

#endif
