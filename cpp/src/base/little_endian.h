#pragma once

// Numbers as most file formats store them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weightstore {

// Reads sizeof(T) bytes, which need not be aligned.
template <class T>
T load_little_endian(const std::byte* bytes) {
  T n = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) n = static_cast<T>(n << 8 | std::to_integer<T>(bytes[i]));
  return n;
}

// A number of up to eight bytes.
inline std::uint64_t load_little_endian(std::string_view bytes) {
  std::uint64_t n = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) n = n << 8 | static_cast<unsigned char>(bytes[i]);
  return n;
}

// Appends the lowest `bytes` bytes of a number.
inline void append_little_endian(std::string& out, std::uint64_t n, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(n >> (8 * i) & 0xFF));
}

}  // namespace weightstore
