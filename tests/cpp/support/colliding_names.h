#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

// Names of 16 ASCII characters that all have the same std::hash in libstdc++: what the author of a hostile file would
// choose. Its hash, Murmur's 64-bit one without a secret, takes a word with two multiplications by an odd number and a
// shift, which can all be undone. So the first word is anything, and the second is the one that leads to the same
// state.
namespace colliding_names {

inline constexpr std::uint64_t kMultiplier = 0xC6A4A7935BD1E995u;

// The number whose product with the odd `n` is 1, by Newton's iteration.
constexpr std::uint64_t inverse(std::uint64_t n) {
  std::uint64_t x = n;
  for (int i = 0; i < 6; ++i) x *= 2 - n * x;
  return x;
}

constexpr std::uint64_t mix(std::uint64_t word) {
  word *= kMultiplier;
  return (word ^ word >> 47) * kMultiplier;
}

constexpr std::uint64_t unmix(std::uint64_t mixed) {
  mixed *= inverse(kMultiplier);
  return (mixed ^ mixed >> 47) * inverse(kMultiplier);
}
static_assert(unmix(mix(0x0123456789ABCDEFu)) == 0x0123456789ABCDEFu);

inline bool is_ascii(std::uint64_t word) { return (word & 0x8080808080808080u) == 0; }

inline std::vector<std::string> make(std::size_t count) {
  constexpr std::uint64_t kSeed = 0xC70F6907u;  // of std::hash in libstdc++
  constexpr std::uint64_t kStart = kSeed ^ 16 * kMultiplier;
  constexpr std::uint64_t kMeeting = 0x5EED;  // the state in which all of them end
  std::vector<std::string> names;
  for (std::uint64_t n = 0; names.size() < count; ++n) {
    char digits[17];
    std::snprintf(digits, sizeof(digits), "%08x", static_cast<unsigned>(n));
    std::uint64_t first;
    std::memcpy(&first, digits, 8);
    const std::uint64_t second = unmix(kMeeting ^ (kStart ^ mix(first)) * kMultiplier);
    if (!is_ascii(second)) continue;
    std::memcpy(digits + 8, &second, 8);
    names.emplace_back(digits, 16);
  }
  return names;
}

}  // namespace colliding_names
