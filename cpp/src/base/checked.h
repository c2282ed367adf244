#pragma once

// Arithmetic on numbers that come from a file. The library never adds, multiplies or allocates with such a number
// without one of these functions. They return nullopt on overflow.

#include <cstdint>
#include <optional>

namespace weightstore {

inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

inline std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// Rounds `n` up to a multiple of `alignment`, which is a power of two.
inline std::optional<std::uint64_t> checked_round_up(std::uint64_t n, std::uint64_t alignment) {
  const auto sum = checked_add(n, alignment - 1);
  if (!sum) return std::nullopt;
  return *sum & ~(alignment - 1);
}

// True when [begin, end) is a range inside [0, size).
inline bool range_within(std::uint64_t begin, std::uint64_t end, std::uint64_t size) {
  return begin <= end && end <= size;
}

}  // namespace weightstore
