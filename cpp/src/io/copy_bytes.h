#pragma once

// Copies that avoid a cliff. On AMD processors with fast short "rep movsb", which both the kernel and the C library
// copy with, a copy to an address that is 1 to 31 bytes beyond its origin, modulo the page, runs at a quarter of the
// speed. The tensors of a file tend to share their offset in the page, and so do large allocations: when it happens, it
// happens to all of them.

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace weightstore::io {

// Whether a copy from (file or memory) address `from` to `to` falls off the cliff.
inline bool copies_slowly(std::uint64_t to, std::uint64_t from, std::size_t size) {
  const std::uint64_t distance = (to - from) % 4096;
  return size >= 4096 && distance >= 1 && distance < 32;
}

inline std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

// memcpy, in steps too short for "rep movsb" where that is the faster way.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t size) {
  constexpr std::size_t kStep = 1024;
  if (copies_slowly(address_of(to), address_of(from), size)) {
    for (; size > kStep; size -= kStep, to += kStep, from += kStep) std::memcpy(to, from, kStep);
  }
  if (size > 0) std::memcpy(to, from, size);
}

}  // namespace weightstore::io
