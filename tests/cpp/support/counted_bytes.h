#pragma once

// Counts the calls of memcpy(), memcmp() and their like in the program that includes this, and the bytes they go over.
// For one source file of a program, which must be linked with weightstore_counted_bytes() (counted_bytes.cmake): the
// linker then sends the calls here. Calls that the compiler expands in place, of a few bytes, are not seen; neither are
// calls inside of shared libraries.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace counted_bytes {

inline std::atomic<std::uint64_t> calls{0};
inline std::atomic<std::uint64_t> bytes{0};

// Not a read-modify-write, which would be slow: programs that count work on one thread.
inline void add(std::size_t size) {
  calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  bytes.store(bytes.load(std::memory_order_relaxed) + size, std::memory_order_relaxed);
}

}  // namespace counted_bytes

// __real_<name> is the linker's name for the function itself.
#define WEIGHTSTORE_COUNTED(result, name, first, second)                 \
  extern "C" result __real_##name(first, second, std::size_t);           \
  extern "C" result __wrap_##name(first a, second b, std::size_t size) { \
    counted_bytes::add(size);                                            \
    return __real_##name(a, b, size);                                    \
  }

WEIGHTSTORE_COUNTED(void*, memcpy, void*, const void*)
WEIGHTSTORE_COUNTED(void*, memmove, void*, const void*)
WEIGHTSTORE_COUNTED(void*, memset, void*, int)
WEIGHTSTORE_COUNTED(int, memcmp, const void*, const void*)
WEIGHTSTORE_COUNTED(int, bcmp, const void*, const void*)
WEIGHTSTORE_COUNTED(void*, memchr, const void*, int)
#if defined(__clang__) && defined(__has_feature)
#if __has_feature(address_sanitizer)
// What clang calls in their place under AddressSanitizer.
WEIGHTSTORE_COUNTED(void*, __asan_memcpy, void*, const void*)
WEIGHTSTORE_COUNTED(void*, __asan_memmove, void*, const void*)
WEIGHTSTORE_COUNTED(void*, __asan_memset, void*, int)
#endif
#endif
#undef WEIGHTSTORE_COUNTED
