#pragma once

// Numbers as most file formats store them.

#include <cstddef>
#include <cstdint>

namespace weightstore {

// Reads sizeof(T) bytes, wherever they lie.
template <class T>
T load_little_endian(const std::byte* bytes) {
  T n = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) n = static_cast<T>(n << 8 | std::to_integer<T>(bytes[i]));
  return n;
}

}  // namespace weightstore
