#pragma once

// The codes of DEFLATE's blocks.
//
// Codes are canonical: per length there is the number of codes, and which symbols they stand for. A code is decoded bit
// by bit, which needs no preparation; a block may have ten bits, so that preparing much for each would take very long.
// A block that turns out to be longer gets tables by which a code of up to nine bits is decoded in one step.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace weightstore::deflate {

inline constexpr std::size_t kMaxBits = 15;
inline constexpr std::size_t kFastBits = 9;
inline constexpr unsigned kSymbolsBeforeTables = 128;
inline constexpr std::size_t kMaxLiterals = 286;
inline constexpr std::size_t kMaxDistances = 30;
inline constexpr std::size_t kLongestCopy = 258;
inline constexpr std::size_t kHistory = 32u << 10;  // how far back a copy may reach

inline constexpr std::array<std::uint16_t, 29> kLengthBase = {
    3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
inline constexpr std::array<std::uint8_t, 29> kLengthBits = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                             2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
inline constexpr std::array<std::uint16_t, 30> kDistanceBase = {
    1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
    193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
inline constexpr std::array<std::uint8_t, 30> kDistanceBits = {0, 0, 0, 0, 1, 1, 2, 2,  3,  3,  4,  4,  5,  5,  6,
                                                               6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};
inline constexpr std::array<std::uint8_t, 19> kCodeOrder = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                            11, 4,  12, 3, 13, 2, 14, 1, 15};

struct Code {
  std::array<std::uint16_t, kMaxBits + 1> counts{};
  std::array<std::uint16_t, kMaxLiterals + 2> symbols{};  // by their codes

  // False when the lengths claim more codes than there are, or fewer. Where `sparse`, one symbol of one bit is right as
  // well, which leaves the bit's other value unused, and so is none at all.
  constexpr bool build(std::span<const std::uint8_t> lengths, bool sparse = true) {
    counts.fill(0);
    for (const std::uint8_t length : lengths) ++counts[length];
    const bool single = counts[0] == lengths.size() || (counts[0] + 1u == lengths.size() && counts[1] == 1);
    counts[0] = 0;
    int left = 1;
    for (std::size_t bits = 1; bits <= kMaxBits; ++bits) {
      left = (left << 1) - counts[bits];
      if (left < 0) return false;
    }
    if (left > 0 && !(sparse && single)) return false;
    std::array<std::uint16_t, kMaxBits + 2> offsets{};
    for (std::size_t bits = 1; bits <= kMaxBits; ++bits) {
      offsets[bits + 1] = static_cast<std::uint16_t>(offsets[bits] + counts[bits]);
    }
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      if (lengths[i] != 0) symbols[offsets[lengths[i]]++] = static_cast<std::uint16_t>(i);
    }
    return true;
  }
};

// Codes of up to kFastBits bits, by the next bits of the input: the symbol and, in the lowest four bits, the length of
// its code. 0 where the code is longer.
struct FastCode {
  std::array<std::uint16_t, 1u << kFastBits> entries{};

  constexpr void build(const Code& code) {
    entries.fill(0);
    unsigned next = 0;  // the code, its first bit highest
    std::size_t index = 0;
    for (unsigned bits = 1; bits <= kFastBits; ++bits, next <<= 1) {
      for (unsigned k = 0; k < code.counts[bits]; ++k, ++next, ++index) {
        unsigned reversed = 0;
        for (unsigned b = 0; b < bits; ++b) reversed |= (next >> b & 1) << (bits - 1 - b);
        const auto entry = static_cast<std::uint16_t>(code.symbols[index] << 4 | bits);
        for (unsigned at = reversed; at < entries.size(); at += 1u << bits) entries[at] = entry;
      }
    }
  }
};

// The codes of a block: of bytes and lengths, and of distances.
struct Codes {
  Code literals;
  Code distances;
};
struct FastCodes {
  FastCode literals;
  FastCode distances;

  constexpr void build(const Codes& codes) {
    literals.build(codes.literals);
    distances.build(codes.distances);
  }
};

// Those of every block that brings none of its own.
inline constexpr Codes kFixedCodes = [] {
  std::array<std::uint8_t, kMaxLiterals + 2> literals{};
  for (std::size_t i = 0; i < literals.size(); ++i) literals[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
  std::array<std::uint8_t, 32> distances{};
  distances.fill(5);
  Codes codes;
  codes.literals.build(literals);
  codes.distances.build(distances);
  return codes;
}();
inline constexpr FastCodes kFastFixedCodes = [] {
  FastCodes fast;
  fast.build(kFixedCodes);
  return fast;
}();

}  // namespace weightstore::deflate
