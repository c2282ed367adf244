// A decoder of canonical codes by counting: per length, how many codes there are and which symbols they stand for. One
// bit at a time is slow beside table lookups, but what we inflate is a pickle of a few hundred kilobytes at most.

#include "codec/inflate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "weightstore/error.h"

namespace weightstore {
namespace {

constexpr std::size_t kMaxBits = 15;
constexpr std::size_t kMaxLiterals = 286;
constexpr std::size_t kMaxDistances = 30;

constexpr std::array<std::uint16_t, 29> kLengthBase = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                                       31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
constexpr std::array<std::uint8_t, 29> kLengthBits = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                                      2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
constexpr std::array<std::uint16_t, 30> kDistanceBase = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                                         33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                                         1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
constexpr std::array<std::uint8_t, 30> kDistanceBits = {0, 0, 0, 0, 1, 1, 2, 2,  3,  3,  4,  4,  5,  5,  6,
                                                        6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};
constexpr std::array<std::uint8_t, 19> kCodeOrder = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};

[[noreturn]] void fail(const char* what) {
  throw Error(ErrorCode::kCorrupt, std::string("the compressed data is damaged: ") + what);
}

struct Code {
  std::array<std::uint16_t, kMaxBits + 1> counts{};
  std::array<std::uint16_t, kMaxLiterals + 2> symbols{};

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

// The codes of a block: of bytes and lengths, and of distances.
struct Codes {
  Code literals;
  Code distances;
};

// Those of every block that brings none of its own. Such a block may have ten bits, so that making them for each would
// take very long.
constexpr Codes kFixedCodes = [] {
  std::array<std::uint8_t, kMaxLiterals + 2> literals{};
  for (std::size_t i = 0; i < literals.size(); ++i) literals[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
  std::array<std::uint8_t, 32> distances{};
  distances.fill(5);
  Codes codes;
  codes.literals.build(literals);
  codes.distances.build(distances);
  return codes;
}();

class Inflater {
 public:
  Inflater(ConstBytes in, MutableBytes out) : in_(in), out_(out) {}

  void run() {
    bool last = false;
    while (!last) {
      last = take(1) != 0;
      switch (take(2)) {
        case 0:
          stored_block();
          break;
        case 1:
          compressed_block(kFixedCodes);
          break;
        case 2:
          dynamic_block();
          break;
        default:
          fail("a block of a kind that does not exist");
      }
    }
    if (filled_ != out_.size()) fail("it is shorter than the archive says");
    if (position_ != in_.size()) fail("bytes behind its end");
  }

 private:
  unsigned take(unsigned count) {
    while (bit_count_ < count) {
      if (position_ == in_.size()) fail("it ends too early");
      bits_ |= std::to_integer<std::uint32_t>(in_[position_++]) << bit_count_;
      bit_count_ += 8;
    }
    const std::uint32_t value = bits_ & ((1u << count) - 1);
    bits_ >>= count;
    bit_count_ -= count;
    return value;
  }

  unsigned decode(const Code& code) {
    int value = 0;
    int first = 0;
    int index = 0;
    for (std::size_t bits = 1; bits <= kMaxBits; ++bits) {
      value |= static_cast<int>(take(1));
      const int count = code.counts[bits];
      if (value - count < first) return code.symbols[static_cast<std::size_t>(index + value - first)];
      index += count;
      first = (first + count) << 1;
      value <<= 1;
    }
    fail("a code that does not exist");
  }

  // Where the next `count` bytes go.
  std::byte* put(std::size_t count) {
    if (count > out_.size() - filled_) fail("it is longer than the archive says");
    filled_ += count;
    return out_.data() + filled_ - count;
  }

  void stored_block() {
    bits_ = 0;
    bit_count_ = 0;
    if (in_.size() - position_ < 4) fail("it ends too early");
    const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(in_[position_ + i]); };
    const unsigned length = at(0) | at(1) << 8;
    if ((at(2) | at(3) << 8) != (~length & 0xFFFF)) fail("a block's length and its complement differ");
    position_ += 4;
    if (length > in_.size() - position_) fail("it ends too early");
    std::copy_n(in_.data() + position_, length, put(length));
    position_ += length;
  }

  void dynamic_block() {
    const std::size_t literal_count = take(5) + 257;
    const std::size_t distance_count = take(5) + 1;
    const std::size_t code_count = take(4) + 4;
    if (literal_count > kMaxLiterals || distance_count > kMaxDistances) fail("more codes than there are");
    std::array<std::uint8_t, 19> code_lengths{};
    for (std::size_t i = 0; i < code_count; ++i) code_lengths[kCodeOrder[i]] = static_cast<std::uint8_t>(take(3));
    Code code;
    if (!code.build(code_lengths, false)) fail("an impossible code");
    std::array<std::uint8_t, kMaxLiterals + kMaxDistances> lengths{};
    for (std::size_t i = 0; i < literal_count + distance_count;) {
      const unsigned symbol = decode(code);
      if (symbol < 16) {
        lengths[i++] = static_cast<std::uint8_t>(symbol);
        continue;
      }
      if (symbol == 16 && i == 0) fail("a repetition of nothing");
      const std::uint8_t value = symbol == 16 ? lengths[i - 1] : std::uint8_t{0};
      std::size_t count = symbol == 16 ? 3 + take(2) : symbol == 17 ? 3 + take(3) : 11 + take(7);
      if (count > literal_count + distance_count - i) fail("a repetition beyond the end");
      for (; count > 0; --count) lengths[i++] = value;
    }
    if (lengths[256] == 0) fail("a block without an end");
    const std::span<const std::uint8_t> all(lengths);
    if (!codes_.literals.build(all.first(literal_count))) fail("an impossible code");
    if (!codes_.distances.build(all.subspan(literal_count, distance_count))) fail("an impossible code");
    compressed_block(codes_);
  }

  void compressed_block(const Codes& codes) {
    for (;;) {
      unsigned symbol = decode(codes.literals);
      if (symbol < 256) {
        *put(1) = static_cast<std::byte>(symbol);
        continue;
      }
      if (symbol == 256) return;
      symbol -= 257;
      if (symbol >= kLengthBase.size()) fail("a length that does not exist");
      const std::size_t length = kLengthBase[symbol] + take(kLengthBits[symbol]);
      const unsigned far = decode(codes.distances);
      if (far >= kDistanceBase.size()) fail("a distance that does not exist");
      const std::size_t distance = kDistanceBase[far] + take(kDistanceBits[far]);
      if (distance > filled_) fail("a copy from before its beginning");
      std::byte* to = put(length);
      // One at a time: what is copied may be what was just written.
      for (std::size_t i = 0; i < length; ++i) to[i] = *(to + i - distance);
    }
  }

  const ConstBytes in_;
  const MutableBytes out_;
  std::size_t position_ = 0;
  std::size_t filled_ = 0;
  std::uint32_t bits_ = 0;
  unsigned bit_count_ = 0;
  Codes codes_;  // of the last dynamic block
};

}  // namespace

void inflate(ConstBytes compressed, MutableBytes out) { Inflater(compressed, out).run(); }

}  // namespace weightstore
