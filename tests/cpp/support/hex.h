#pragma once

#include <span>
#include <string>
#include <string_view>

#include "weightstore/byte_source.h"

// Bytes as hexadecimal digits and back; spaces between digits are skipped.
inline std::string unhex(std::string_view digits) {
  const auto value = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  std::string out;
  int high = -1;
  for (const char c : digits) {
    if (c == ' ') continue;
    if (high < 0) {
      high = value(c);
    } else {
      out.push_back(static_cast<char>(high << 4 | value(c)));
      high = -1;
    }
  }
  return out;
}

inline std::string hex(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    out.push_back("0123456789abcdef"[static_cast<unsigned char>(c) >> 4]);
    out.push_back("0123456789abcdef"[static_cast<unsigned char>(c) & 15]);
  }
  return out;
}

inline weightstore::ConstBytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
