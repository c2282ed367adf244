#pragma once

// JSON as RFC 8259 has it, and nothing else: no comments, no trailing commas, no lone surrogates, UTF-8 only.
//
// The cursor pulls one value after another out of the text without building a tree, so that a header of a hundred
// megabytes costs no more memory than what is kept of it.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/value.h"

namespace weightstore {

// Reads forward through one JSON text, which must outlive it. Every call either advances over what its name says or
// throws Error(kCorrupt) with the offset of the first byte that cannot be. Thread-compatible.
class JsonCursor {
 public:
  // Open arrays and objects; one more is refused. The figure of the SafeTensors reference.
  static constexpr int kMaxDepth = 127;

  explicit JsonCursor(std::string_view text) : text_(text) {}

  // The first byte of the next value, '\0' at the end of the text.
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  void begin_object();
  // True and `key` when the object goes on, false when it has ended. The key points into the text, or into `scratch`
  // when it had to be unescaped.
  bool next_key(std::string_view& key, std::string& scratch);

  void begin_array();
  // True when another element follows, false when the array has ended.
  bool next_element();

  std::string_view read_string(std::string& scratch);
  // A plain non-negative integer below 2^64: no sign, fraction, exponent or leading zero.
  std::uint64_t read_uint();
  // Any value, as a tree. Duplicate keys are refused.
  Value read_value();
  // Checks one value of any kind and returns its text.
  std::string_view skip_value();
  // Consumes the literal null if it is next.
  bool consume_null();

  // For text whose spelling is known, in place of the calls above: advance over exactly this text, or over a plain
  // integer, if it is next without white space; false leaves the cursor where it is.
  bool skip_text(std::string_view text) {
    if (text_.size() - at_ < text.size() || std::memcmp(text_.data() + at_, text.data(), text.size()) != 0)
      return false;
    at_ += text.size();
    return true;
  }
  bool skip_uint(std::uint64_t& n);
  // What was not read yet, and a way back to an earlier offset() at the same depth.
  std::string_view rest() const { return text_.substr(at_); }
  void back_to(std::size_t offset) { at_ = offset; }

  // Throws unless only white space is left.
  void expect_end();

  std::size_t offset() const { return at_; }

  [[noreturn]] void fail(const std::string& what) const { fail_at(at_, what); }
  [[noreturn]] void fail_at(std::size_t offset, const std::string& what) const;

 private:
  void skip_space() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }
  void expect(char c, const char* what) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) [[unlikely]]
      fail_expected(what);
    ++at_;
  }
  [[noreturn]] void fail_expected(const char* what) const;
  static std::string describe(char c);  // for errors
  void enter(char open, const char* what);
  void literal(std::string_view word);
  std::string_view number_text();
  // Advances over a string and returns what is between its quotes, UTF-8 but not yet unescaped.
  std::string_view string_body(bool& escaped);
  void unescape(std::string_view body, std::size_t body_offset, std::string* out) const;
  Value number_value(std::string_view number) const;

  // How many elements the arrays and objects inside of a value have, in the order in which they begin. Trees are built
  // with exactly the room they need: a vector that grows would take up to three times as much.
  using Counts = std::vector<std::uint32_t>;
  // Checks one value; fills `counts` unless it is nullptr.
  std::string_view walk_value(Counts* counts);
  // `counts` are those of a value that walk_value() found right; advances it.
  Value build_value(const std::uint32_t*& counts);

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  bool first_ = false;  // no element of the innermost open array or object was read yet
};

// The whole text as a tree.
Value json_decode(std::string_view text);

// Compact JSON. Text is escaped as the SafeTensors reference does: \" \\ \b \f \n \r \t, other control characters as
// \u00xx, all else as it is. Throws Error(kInvalidArgument) for what JSON cannot say (bytes, NaN, keys that are not
// text).
std::string json_encode(const Value& value);

// Appends `text`, which must be UTF-8, as a JSON string.
void append_json_string(std::string& out, std::string_view text);

}  // namespace weightstore
