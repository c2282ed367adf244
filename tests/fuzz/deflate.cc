#include "deflate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

namespace mutations {
namespace {

class BitWriter {
 public:
  // The lowest bit first, as DEFLATE has everything but codes.
  void bits(std::uint32_t value, int count) {
    pending_ |= std::uint64_t{value} << used_;
    for (used_ += count; used_ >= 8; used_ -= 8, pending_ >>= 8) out_.push_back(static_cast<char>(pending_));
  }
  void code(std::uint32_t value, int count) {
    for (int i = count; i-- > 0;) bits(value >> i & 1, 1);
  }
  std::string finish() {
    if (used_ > 0) bits(0, 8 - used_);
    return std::move(out_);
  }

 private:
  std::string out_;
  std::uint64_t pending_ = 0;
  int used_ = 0;
};

// Symbols for lengths and distances have a smallest value each and a number of extra bits (RFC 1951, 3.2.5).
struct Symbol {
  std::uint16_t base;
  std::uint8_t extra;
};
constexpr Symbol kLengths[] = {{3, 0},   {4, 0},   {5, 0},   {6, 0},   {7, 0},  {8, 0},  {9, 0},  {10, 0},
                               {11, 1},  {13, 1},  {15, 1},  {17, 1},  {19, 2}, {23, 2}, {27, 2}, {31, 2},
                               {35, 3},  {43, 3},  {51, 3},  {59, 3},  {67, 4}, {83, 4}, {99, 4}, {115, 4},
                               {131, 5}, {163, 5}, {195, 5}, {227, 5}, {258, 0}};
constexpr Symbol kDistances[] = {{1, 0},     {2, 0},     {3, 0},     {4, 0},      {5, 1},      {7, 1},
                                 {9, 2},     {13, 2},    {17, 3},    {25, 3},     {33, 4},     {49, 4},
                                 {65, 5},    {97, 5},    {129, 6},   {193, 6},    {257, 7},    {385, 7},
                                 {513, 8},   {769, 8},   {1025, 9},  {1537, 9},   {2049, 10},  {3073, 10},
                                 {4097, 11}, {6145, 11}, {8193, 12}, {12289, 12}, {16385, 13}, {24577, 13}};

template <std::size_t N>
std::size_t symbol_of(const Symbol (&symbols)[N], std::size_t value) {
  std::size_t i = N - 1;
  while (symbols[i].base > value) --i;
  return i;
}

void put_symbol(BitWriter& out, std::size_t symbol) {
  const auto s = static_cast<std::uint32_t>(symbol);
  if (s < 144) {
    out.code(0x30 + s, 8);
  } else if (s < 256) {
    out.code(0x190 + s - 144, 9);
  } else if (s < 280) {
    out.code(s - 256, 7);
  } else {
    out.code(0xC0 + s - 280, 8);
  }
}

void put_match(BitWriter& out, std::size_t length, std::size_t distance) {
  const std::size_t l = symbol_of(kLengths, length);
  put_symbol(out, 257 + l);
  out.bits(static_cast<std::uint32_t>(length - kLengths[l].base), kLengths[l].extra);
  const std::size_t d = symbol_of(kDistances, distance);
  out.code(static_cast<std::uint32_t>(d), 5);
  out.bits(static_cast<std::uint32_t>(distance - kDistances[d].base), kDistances[d].extra);
}

}  // namespace

std::string deflate(std::string_view bytes) {
  constexpr std::size_t kShortest = 4;
  constexpr std::size_t kLongest = 258;
  constexpr std::size_t kWindow = 32768;
  constexpr std::size_t kNowhere = SIZE_MAX;
  std::array<std::size_t, 1 << 12> last;  // where four bytes of this hash were seen last
  last.fill(kNowhere);
  BitWriter out;
  out.bits(1, 1);  // the last block
  out.bits(1, 2);  // of fixed codes
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t length = 0;
    std::size_t from = kNowhere;
    if (bytes.size() - at >= kShortest) {
      std::uint32_t word;
      std::memcpy(&word, bytes.data() + at, sizeof(word));
      std::size_t& seen = last[word * 0x9E3779B1u >> 20];
      from = std::exchange(seen, at);
      if (from != kNowhere && at - from <= kWindow) {
        const std::size_t most = std::min(kLongest, bytes.size() - at);
        while (length < most && bytes[from + length] == bytes[at + length]) ++length;
      }
    }
    if (length >= kShortest) {
      put_match(out, length, at - from);
      at += length;
    } else {
      put_symbol(out, static_cast<unsigned char>(bytes[at++]));
    }
  }
  put_symbol(out, 256);
  return out.finish();
}

}  // namespace mutations
