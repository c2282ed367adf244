#pragma once

// Reads and writes JSON, strictly as RFC 8259 defines it: no comments, no trailing commas, no lone surrogates, UTF-8
// only.
//
// The cursor reads one value after another and builds no tree, so that the header of a file needs no memory besides
// what the caller keeps of it.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/value.h"

namespace weightstore {

// Reads one JSON text from its beginning to its end. The text must outlive the cursor. Each function advances over what
// it reads, or throws Error(kCorrupt) with the offset of the first wrong byte. Used by one thread at a time.
class JsonCursor {
 public:
  // How deeply arrays and objects may be nested. The reference implementation of SafeTensors has the same limit.
  static constexpr int kMaxDepth = 127;

  explicit JsonCursor(std::string_view text) : text_(text) {}

  // The first byte of the next value, or '\0' at the end of the text. Skips white space.
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  void begin_object();
  // Reads the next key of the object. Returns false at the end of the object. `key` points into the text, or into
  // `scratch` if it had to be unescaped.
  bool next_key(std::string_view& key, std::string& scratch);

  void begin_array();
  // Goes to the next element of the array. Returns false at the end of the array.
  bool next_element();

  // The result points into the text, or into `scratch` if it had to be unescaped.
  std::string_view read_string(std::string& scratch);
  // Reads an integer from 0 to 2^64 - 1 without sign, fraction, exponent or leading zero.
  std::uint64_t read_uint();
  // Reads a value of any kind as a tree. Refuses duplicate keys.
  Value read_value();
  // Skips a value of any kind, after checking it, and returns its text.
  std::string_view skip_value();
  // Skips the literal null if it comes next; returns false otherwise.
  bool consume_null();

  // Fast paths for text in a known spelling. They skip exactly this text, or read an integer of at most 19 digits, if
  // that comes next without white space before it. Otherwise they return false and do not move the cursor.
  bool skip_text(std::string_view text) {
    if (text_.size() - at_ < text.size() || std::memcmp(text_.data() + at_, text.data(), text.size()) != 0)
      return false;
    at_ += text.size();
    return true;
  }
  bool skip_uint(std::uint64_t& n);
  // The text that was not read yet; and a way back to an earlier offset() in the same part of the text, at the same
  // nesting depth.
  std::string_view rest() const { return text_.substr(at_); }
  void back_to(std::size_t offset) { at_ = offset - base_; }

  // Throws Error(kCorrupt) unless only white space is left.
  void expect_end();

  // For a text that is in memory in parts. continue_in() goes on in `text`, which begins with rest(). A caller that
  // finds an error at the end of a part goes back to a copy of the cursor, and continues from there in a longer text.
  // An error that would not be there in a longer text leaves the cursor at_end_of_part().
  void continue_in(std::string_view text) {
    base_ += at_;
    text_ = text;
    at_ = 0;
  }
  bool at_end_of_part() const { return text_.size() - at_ < kLongestWord; }

  // Of the next byte, in the whole text.
  std::size_t offset() const { return base_ + at_; }

  [[noreturn]] void fail(const std::string& what) const { fail_at(at_, what); }

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
  [[noreturn]] void fail_at(std::size_t at, const std::string& what) const;  // `at` in text_
  [[noreturn]] void fail_expected(const char* what) const;
  static std::string describe(char c);  // for messages
  void enter(char open, const char* what);
  void literal(std::string_view word);
  std::string_view number_text();
  // Reads a string and returns the text between its quotes: checked to be UTF-8, but not unescaped.
  std::string_view string_body(bool& escaped);
  void unescape(std::string_view body, std::size_t body_offset, std::string* out) const;
  Value number_value(std::string_view number) const;

  // The number of elements of each array and object inside a value, in the order in which they begin. build_value()
  // allocates exactly this much, because a growing vector would take up to three times as much memory.
  using Counts = std::vector<std::uint32_t>;
  // Skips one value after checking it. Fills `counts` unless it is null.
  std::string_view walk_value(Counts* counts);
  // Builds the tree of a value that walk_value() has checked. Takes the counts of the value from `counts`, and moves
  // `counts` past them.
  Value build_value(const std::uint32_t*& counts);

  static constexpr std::size_t kLongestWord = 5;  // "false"

  std::string_view text_;
  std::size_t at_ = 0;    // in text_
  std::size_t base_ = 0;  // where text_ begins in the whole text
  int depth_ = 0;
  bool first_ = false;  // true before the first element of the innermost open array or object
};

// Decodes the whole text as one value. Throws Error(kCorrupt).
Value json_decode(std::string_view text);

// Encodes a value as JSON without white space. Escapes text as the reference implementation of SafeTensors does:
// quotes, \\, \b, \f, \n, \r, \t, and other control characters as \u00xx. Throws Error(kInvalidArgument) for values
// that JSON cannot represent: bytes, NaN, infinity, keys that are not text.
std::string json_encode(const Value& value);

// Appends `text`, which must be UTF-8, as a JSON string.
void append_json_string(std::string& out, std::string_view text);

}  // namespace weightstore
