#pragma once

// A DEFLATE stream that repeats a few bytes, as small as the format allows.

#include <cstdint>
#include <string>
#include <string_view>

namespace deflate_runs {

class Stream {
 public:
  // `head`, then `unit` (at most four bytes) and 258 bytes of its repetition `copies` times, then `tail`.
  Stream(std::string_view head, std::string_view unit, std::size_t copies, std::string_view tail) {
    bits(1, 1);  // the last block
    bits(1, 2);  // of fixed codes
    for (const char c : head) literal(c);
    for (const char c : unit) literal(c);
    for (std::size_t i = 0; i < copies; ++i) {
      code(0xC5, 8);                                         // a copy of 258 bytes
      code(static_cast<std::uint32_t>(unit.size()) - 1, 5);  // from that far back
    }
    for (const char c : tail) literal(c);
    code(0, 7);  // the end
    bits(0, 7);  // fills the last byte
    inflated_ = head.size() + unit.size() + 258 * copies + tail.size();
  }

  const std::string& bytes() const { return bytes_; }
  std::size_t inflated_size() const { return inflated_; }

 private:
  void bits(std::uint32_t value, int count) {
    for (int i = 0; i < count; ++i) {
      pending_ |= (value >> i & 1) << used_++;
      if (used_ < 8) continue;
      bytes_.push_back(static_cast<char>(pending_));
      pending_ = 0;
      used_ = 0;
    }
  }
  void code(std::uint32_t value, int count) {
    for (int i = count; i-- > 0;) bits(value >> i, 1);
  }
  void literal(char c) {
    const auto value = static_cast<unsigned char>(c);
    value < 144 ? code(0x30u + value, 8) : code(0x190u + value - 144u, 9);
  }

  std::string bytes_;
  std::size_t inflated_ = 0;
  std::uint32_t pending_ = 0;
  int used_ = 0;
};

}  // namespace deflate_runs
