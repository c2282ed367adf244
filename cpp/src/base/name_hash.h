#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace weightstore {

// A fast hash of a name with a secret seed. Because of the seed, the author of a file cannot choose names that collide.
// The seed is never stored, and no order depends on it.
inline std::uint64_t hash_name(std::string_view name, std::uint64_t seed) {
  __extension__ using Wide = unsigned __int128;
  const auto mix = [](std::uint64_t a, std::uint64_t b) {
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  };
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15u;
  std::uint64_t hash = seed ^ mix(name.size() ^ kOdd, seed | 1);
  const char* p = name.data();
  std::size_t left = name.size();
  for (; left >= 8; p += 8, left -= 8) {
    std::uint64_t word;
    std::memcpy(&word, p, 8);
    hash = mix(hash ^ word, kOdd ^ seed);
  }
  std::uint64_t tail = 0;
  if (left > 0) std::memcpy(&tail, p, left);
  return mix(hash ^ tail ^ kOdd, seed ^ 0xD6E8FEB86659FD93u);
}

}  // namespace weightstore
