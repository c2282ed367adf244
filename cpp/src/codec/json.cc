#include "codec/json.h"

#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "base/name_set.h"
#include "base/utf8.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Decimal exponent of the leading digit of a well-formed number: 0 for "7", 2 for "123", -3 for "0.004". Saturates.
std::int64_t leading_exponent(std::string_view number) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  std::size_t i = number.front() == '-' ? 1 : 0;
  std::int64_t exponent = -1;
  bool significant = false;
  bool fraction = false;
  for (; i < number.size() && number[i] != 'e' && number[i] != 'E'; ++i) {
    if (number[i] == '.') {
      fraction = true;
      continue;
    }
    if (!significant && number[i] != '0') {
      significant = true;
      if (fraction) continue;
      exponent = 0;
      continue;
    }
    if (significant && !fraction) ++exponent;
    if (!significant && fraction) --exponent;
  }
  if (!significant) return -kHuge;
  if (i == number.size()) return exponent;
  ++i;
  const bool negative = number[i] == '-';
  if (number[i] == '-' || number[i] == '+') ++i;
  std::int64_t power = 0;
  for (; i < number.size(); ++i) power = power > kHuge ? kHuge : power * 10 + (number[i] - '0');
  return negative ? exponent - power : exponent + power;
}

}  // namespace

void JsonCursor::fail_at(std::size_t at, const std::string& what) const {
  throw Error(ErrorCode::kCorrupt, "invalid JSON: " + what)
      .at_offset(base_ + at)
      .known_as("invalid JSON in header: " + what);
}

void JsonCursor::fail_expected(const char* what) const {
  const std::string found = at_ == text_.size() ? "the end of the text" : describe(text_[at_]);
  fail(std::string("expected ") + what + ", found " + found);
}

void JsonCursor::enter(char open, const char* what) {
  expect(open, what);
  if (++depth_ > kMaxDepth) fail_at(at_ - 1, "nested deeper than " + std::to_string(kMaxDepth) + " levels");
  first_ = true;
}

void JsonCursor::begin_object() { enter('{', "an object"); }

void JsonCursor::begin_array() { enter('[', "an array"); }

bool JsonCursor::next_key(std::string_view& key, std::string& scratch) {
  const char c = peek();
  if (c == '}') {
    ++at_;
    --depth_;
    first_ = false;
    return false;
  }
  if (!first_) expect(',', "',' or '}'");
  first_ = false;
  if (peek() != '"') fail("expected a key in double quotes");
  key = read_string(scratch);
  expect(':', "':'");
  return true;
}

bool JsonCursor::next_element() {
  const char c = peek();
  if (c == ']') {
    ++at_;
    --depth_;
    first_ = false;
    return false;
  }
  if (!first_) expect(',', "',' or ']'");
  first_ = false;
  return true;
}

std::uint64_t JsonCursor::read_uint() {
  const char c = peek();
  if (!is_digit(c)) fail("expected a non-negative integer");
  const std::size_t begin = at_;
  std::uint64_t n = 0;
  for (; at_ < text_.size() && is_digit(text_[at_]); ++at_) {
    const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
    if (__builtin_mul_overflow(n, std::uint64_t{10}, &n) || __builtin_add_overflow(n, digit, &n)) {
      fail_at(begin, "integer above 2^64 - 1");
    }
  }
  if (c == '0' && at_ - begin > 1) fail_at(begin, "integer with a leading zero");
  if (at_ < text_.size() && (text_[at_] == '.' || text_[at_] == 'e' || text_[at_] == 'E')) {
    fail_at(begin, "expected an integer, found a number with a fraction or exponent");
  }
  return n;
}

bool JsonCursor::skip_uint(std::uint64_t& n) {
  constexpr std::size_t kSafeDigits = 19;  // never above 2^64 - 1
  const std::string_view ahead = rest().substr(0, kSafeDigits + 1);
  std::size_t digits = 0;
  n = 0;
  while (digits < ahead.size() && is_digit(ahead[digits]))
    n = n * 10 + static_cast<std::uint64_t>(ahead[digits++] - '0');
  if (digits == 0 || digits > kSafeDigits || (digits > 1 && ahead[0] == '0')) return false;
  at_ += digits;
  return true;
}

void JsonCursor::literal(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) fail("expected a value");
  at_ += word.size();
}

bool JsonCursor::consume_null() {
  if (peek() != 'n') return false;
  literal("null");
  return true;
}

std::string_view JsonCursor::number_text() {
  const std::size_t begin = at_;
  const auto digits = [&] {
    const std::size_t first = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ == first) fail("expected a digit");
    return at_ - first;
  };
  if (text_[at_] == '-') ++at_;
  const bool zero = at_ < text_.size() && text_[at_] == '0';
  if (digits() > 1 && zero) fail_at(begin, "number with a leading zero");
  if (at_ < text_.size() && text_[at_] == '.') {
    ++at_;
    digits();
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) ++at_;
    digits();
  }
  const std::string_view number = text_.substr(begin, at_ - begin);
  // 308 is the exponent of the largest double; whether a number with that exponent still fits is decided by parsing it.
  const std::int64_t exponent = leading_exponent(number);
  if (exponent > 308) fail_at(begin, "number out of range");
  if (exponent == 308) {
    double ignored;
    if (std::from_chars(number.begin(), number.end(), ignored).ec != std::errc()) fail_at(begin, "number out of range");
  }
  return number;
}

Value JsonCursor::number_value(std::string_view number) const {
  if (number.find_first_of(".eE") == std::string_view::npos) {
    std::int64_t i;
    if (std::from_chars(number.begin(), number.end(), i).ec == std::errc()) return Value(i);
    std::uint64_t u;
    if (std::from_chars(number.begin(), number.end(), u).ec == std::errc()) return Value(u);
  }
  double d = 0;
  const auto result = std::from_chars(number.begin(), number.end(), d);
  // number_text() has refused what is too large, so this is too small.
  if (result.ec == std::errc::result_out_of_range) d = number.front() == '-' ? -0.0 : 0.0;
  return Value(d);
}

std::string_view JsonCursor::walk_value(Counts* counts) {
  const char first = peek();
  const std::size_t begin = at_;
  // An explicit stack of what is open, one bit each, so that depth costs no call frames.
  std::array<bool, kMaxDepth + 1> is_object{};
  std::array<std::size_t, kMaxDepth + 1> container;  // its number; only set where they are counted
  const auto opened = [&](bool object) {
    is_object[static_cast<std::size_t>(depth_)] = object;
    if (counts == nullptr) return;
    container[static_cast<std::size_t>(depth_)] = counts->size();
    counts->push_back(0);
  };
  const int bottom = depth_;
  std::string scratch;
  std::string_view key;
  bool escaped;
  char c = first;
  for (;;) {
    switch (c) {
      case '{':
        begin_object();
        opened(true);
        break;
      case '[':
        begin_array();
        opened(false);
        break;
      case '"': {
        const std::string_view body = string_body(escaped);
        if (escaped) unescape(body, at_ - 1 - body.size(), nullptr);
        break;
      }
      case 't':
        literal("true");
        break;
      case 'f':
        literal("false");
        break;
      case 'n':
        literal("null");
        break;
      case '\0':
        if (at_ == text_.size()) fail("expected a value, found the end of the text");
        [[fallthrough]];
      default:
        if (c != '-' && !is_digit(c)) fail("expected a value, found " + describe(c));
        number_text();
    }
    while (depth_ > bottom) {
      const auto level = static_cast<std::size_t>(depth_);
      if (!(is_object[level] ? next_key(key, scratch) : next_element())) continue;
      if (counts != nullptr) ++(*counts)[container[level]];
      break;
    }
    if (depth_ == bottom) break;
    c = peek();
  }
  return text_.substr(begin, at_ - begin);
}

std::string_view JsonCursor::skip_value() { return walk_value(nullptr); }

Value JsonCursor::read_value() {
  Counts counts;
  if (peek() == '{' || peek() == '[') JsonCursor(*this).walk_value(&counts);
  const std::uint32_t* next = counts.data();
  return build_value(next);
}

Value JsonCursor::build_value(const std::uint32_t*& counts) {
  std::string scratch;
  switch (peek()) {
    case '{': {
      begin_object();
      Value::Map map;
      map.reserve(*counts);
      NameSet seen(*counts++, [&](std::size_t i) { return std::string_view(*map[i].first.get_if<std::string>()); });
      std::string_view key;
      for (std::size_t at = at_; next_key(key, scratch); at = at_) {
        map.emplace_back(std::string(key), Value());
        if (seen.add(map.size() - 1)) fail_at(at, "duplicate key '" + printable(key) + "'");
        map.back().second = build_value(counts);
      }
      return Value(std::move(map));
    }
    case '[': {
      begin_array();
      Value::List list;
      list.reserve(*counts++);
      while (next_element()) list.push_back(build_value(counts));
      return Value(std::move(list));
    }
    case '"':
      return Value(std::string(read_string(scratch)));
    case 't':
      literal("true");
      return Value(true);
    case 'f':
      literal("false");
      return Value(false);
    case 'n':
      literal("null");
      return Value();
    default:
      return number_value(skip_value());
  }
}

void JsonCursor::expect_end() {
  skip_space();
  if (at_ != text_.size()) fail("expected the end of the text, found " + describe(text_[at_]));
}

Value json_decode(std::string_view text) {
  JsonCursor cursor(text);
  Value value = cursor.read_value();
  cursor.expect_end();
  return value;
}

}  // namespace weightstore
