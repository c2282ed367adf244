#pragma once

// Copies that avoid a slow case of the processor. The kernel and the C library copy with "rep movsb". On AMD processors
// where that is fast for short copies, it runs at a quarter of its speed when the target is 1 to 31 bytes after the
// source, modulo the page size. The tensors of a file often share their offset in the page, and so do large
// allocations: if one tensor is affected, usually all are.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weightstore::io {

// Whether a copy from `from` to `to` is such a slow case. Both are memory addresses; `from` can be an offset in a file.
inline bool is_slow_copy(std::uint64_t to, std::uint64_t from, std::size_t size) {
  const std::uint64_t distance = (to - from) % 4096;
  return size >= 4096 && distance >= 1 && distance < 32;
}

inline std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

// memcpy. In the slow case it copies in steps that are too short for "rep movsb".
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t size) {
  constexpr std::size_t kStep = 1024;
  if (is_slow_copy(address_of(to), address_of(from), size)) {
    for (; size > kStep; size -= kStep, to += kStep, from += kStep) std::memcpy(to, from, kStep);
  }
  if (size > 0) std::memcpy(to, from, size);
}

}  // namespace weightstore::io
