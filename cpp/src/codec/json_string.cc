// Strings: found eight bytes at a time, checked to be UTF-8, unescaped only when something is escaped.

#include <bit>
#include <cstring>

#include "base/utf8.h"
#include "codec/json.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Eight bytes at a time: the high bit of each byte of the result is set where `word` has a quote, a backslash or a
// control character. Bytes behind the first hit may be wrong (borrows), so only the lowest one counts.
std::uint64_t string_stops(std::uint64_t word) {
  constexpr std::uint64_t kOnes = 0x0101010101010101u;
  constexpr std::uint64_t kHighs = 0x8080808080808080u;
  const std::uint64_t quote = word ^ (kOnes * '"');
  const std::uint64_t slash = word ^ (kOnes * '\\');
  return (((quote - kOnes) & ~quote) | ((slash - kOnes) & ~slash) | ((word - kOnes * 0x20) & ~word)) & kHighs;
}

}  // namespace

std::string JsonCursor::describe(char c) {
  if (c >= 0x20 && c < 0x7F) return std::string("'") + c + "'";
  std::string text = "byte 0x00";
  constexpr std::string_view kHex = "0123456789abcdef";
  text[text.size() - 2] = kHex[static_cast<unsigned char>(c) >> 4];
  text[text.size() - 1] = kHex[static_cast<unsigned char>(c) & 15];
  return text;
}

std::string_view JsonCursor::string_body(bool& escaped) {
  expect('"', "a string");
  const std::size_t begin = at_;
  escaped = false;
  bool ascii = true;
  for (;;) {
    while (text_.size() - at_ >= 8) {
      std::uint64_t word;
      std::memcpy(&word, text_.data() + at_, sizeof(word));
      const std::uint64_t stops = std::endian::native == std::endian::little ? string_stops(word) : ~std::uint64_t{0};
      if (stops != 0) {
        const auto clean = static_cast<std::size_t>(std::countr_zero(stops) / 8);
        if (clean > 0 && (word & (0x8080808080808080u >> (8 * (8 - clean)))) != 0) ascii = false;
        at_ += std::endian::native == std::endian::little ? clean : 0;
        break;
      }
      if ((word & 0x8080808080808080u) != 0) ascii = false;
      at_ += 8;
    }
    if (at_ == text_.size()) fail("the text ends inside a string");
    const char c = text_[at_];
    if (c == '"') break;
    if (static_cast<unsigned char>(c) < 0x20) fail("control character " + describe(c) + " inside a string");
    if (c == '\\') {
      escaped = true;
      if (++at_ == text_.size()) fail("the text ends inside a string");
    }
    if (static_cast<unsigned char>(text_[at_]) >= 0x80) ascii = false;
    ++at_;
  }
  const std::string_view body = text_.substr(begin, at_ - begin);
  ++at_;
  if (!ascii) {
    const std::size_t valid = valid_utf8_prefix(body);
    if (valid != body.size()) {
      throw Error(ErrorCode::kCorrupt, "invalid UTF-8: " + describe(body[valid]) + " inside a string")
          .at_offset(base_ + begin + valid)
          .known_as("invalid UTF-8 in header: invalid utf-8 sequence from index " +
                    std::to_string(base_ + begin + valid));
    }
  }
  return body;
}

void JsonCursor::unescape(std::string_view body, std::size_t body_offset, std::string* out) const {
  const auto hex4 = [&](std::size_t i) {
    std::uint32_t unit = 0;
    for (std::size_t k = i; k < i + 4; ++k) {
      const char c = k < body.size() ? body[k] : '\0';
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail_at(body_offset + i, "\\u needs four hexadecimal digits");
      unit = unit * 16 + static_cast<std::uint32_t>(digit);
    }
    return unit;
  };
  const auto put = [out](char c) {
    if (out != nullptr) out->push_back(c);
  };
  std::size_t i = 0;
  while (i < body.size()) {
    if (body[i] != '\\') {
      put(body[i++]);
      continue;
    }
    const std::size_t start = i;
    const char c = body[i + 1];
    i += 2;
    constexpr std::string_view kFrom = "\"\\/bfnrt";
    constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    if (const std::size_t k = kFrom.find(c); k != std::string_view::npos) {
      put(kTo[k]);
      continue;
    }
    if (c != 'u') fail_at(body_offset + start, "unknown escape \\" + describe(c));
    std::uint32_t code_point = hex4(i);
    i += 4;
    if (code_point >= 0xDC00 && code_point < 0xE000) fail_at(body_offset + start, "lone low surrogate");
    if (code_point >= 0xD800 && code_point < 0xDC00) {
      if (i + 6 > body.size() || body[i] != '\\' || body[i + 1] != 'u') {
        fail_at(body_offset + start, "lone high surrogate");
      }
      const std::uint32_t low = hex4(i + 2);
      if (low < 0xDC00 || low >= 0xE000) fail_at(body_offset + start, "lone high surrogate");
      code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
      i += 6;
    }
    if (out != nullptr) append_utf8(*out, code_point);
  }
}

std::string_view JsonCursor::read_string(std::string& scratch) {
  bool escaped;
  const std::string_view body = string_body(escaped);
  if (!escaped) return body;
  scratch.clear();
  unescape(body, at_ - 1 - body.size(), &scratch);
  return scratch;
}

}  // namespace weightstore
