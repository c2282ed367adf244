#pragma once

// CBOR (RFC 8949): a cursor that is asked for one item after the other, a writer, and whole trees over both.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "weightstore/byte_source.h"
#include "weightstore/value.h"

namespace weightstore {

enum class CborKind : std::uint8_t { kUint, kNegative, kBytes, kText, kArray, kMap, kBool, kNull, kFloat };

// Walks over CBOR without building anything from it. Every length is compared with the bytes that are left before it is
// used, so the cost of any input is its size.
//
// Accepted: indefinite lengths, integers and lengths longer than needed, `undefined` as null; tags are passed over.
// Refused with kCorrupt: what RFC 8949 calls not well-formed, text that is not UTF-8, other simple values, and an item
// of another kind than the one asked for. Refused with kUnsupported: integers outside [-2^63, 2^64), bignums too.
// Refused with kLimit: more than kMaxDepth arrays and maps inside one another. Errors carry the offset of the item.
//
// Refers to the bytes it was given. A copy walks on its own, which is how to look ahead. Thread-compatible.
class CborCursor {
 public:
  static constexpr std::size_t kMaxDepth = 128;

  // `first_offset` is the place of bytes[0] in its file, for errors.
  explicit CborCursor(ConstBytes bytes, std::uint64_t first_offset = 0) : bytes_(bytes), first_offset_(first_offset) {}

  // What comes next. Moves past tags only.
  CborKind peek();

  // Opens an array or a map. Then, for each element (or each key and its value), next() says true and the caller reads
  // or skips it; next() says false when there are no more, and has left the array or map.
  void enter_array();
  void enter_map();
  bool next() {
    std::uint64_t& remaining = remaining_[depth_ - 1];
    if (remaining == kUntilBreak) return next_until_break();
    if (remaining == 0) {
      --depth_;
      return false;
    }
    --remaining;
    return true;
  }

  // The text itself where it lies in one piece, or its pieces put together in `scratch`.
  std::string_view read_text(std::string& scratch);
  // Text in one piece, as the names of fields are: refers to the input.
  std::string_view read_name();
  // Passes over text that is exactly `name`, or does nothing: the quick way to see what was expected. Misses names in
  // longer forms than they need, so read_name() has the last word.
  bool try_name(std::string_view name) {
    if (name.size() >= 24 || left() <= name.size()) return false;
    const std::byte* p = bytes_.data() + position_;
    if (std::to_integer<std::size_t>(*p) != 0x60 + name.size() || std::memcmp(p + 1, name.data(), name.size()) != 0)
      return false;
    position_ += 1 + name.size();
    return true;
  }
  ConstBytes read_bytes(std::string& scratch);  // as read_text()
  std::uint64_t read_uint() {
    // Most numbers are small, and are their own head.
    if (!at_end() && bytes_[position_] < std::byte{24}) return std::to_integer<std::uint64_t>(bytes_[position_++]);
    return read_any_uint();
  }
  std::int64_t read_int();  // an unsigned integer too, when it fits
  double read_float();      // no integers
  bool read_bool();
  void read_null();

  // Passes over one item with everything inside it; it must be well-formed.
  void skip_value();

  bool at_end() const { return position_ == bytes_.size(); }
  // Where the next byte comes from, counted as errors count.
  std::uint64_t offset() const { return first_offset_ + position_; }

 private:
  // In place of a count; no count reaches it, because counts are compared with the bytes that are left.
  static constexpr std::uint64_t kUntilBreak = UINT64_MAX;

  struct Head {
    std::uint64_t argument;
    std::size_t start;
    std::uint8_t major;
    std::uint8_t info;

    bool indefinite() const { return info == 31; }
  };

  std::size_t left() const { return bytes_.size() - position_; }
  Head take_head();
  Head take_item();
  bool at_tag() const { return !at_end() && std::to_integer<unsigned>(bytes_[position_]) >> 5 == 6; }
  void pass_tags(bool refuse_bignums);
  bool next_until_break();
  std::uint64_t read_any_uint();
  std::string_view take_string(const Head& head);
  std::string_view take_strings(std::uint8_t major, std::string* scratch);
  void enter(std::uint8_t major, std::size_t least_bytes);
  [[noreturn]] void fail_expected(const char* wanted, const Head& found) const;

  ConstBytes bytes_;
  std::uint64_t first_offset_;
  std::size_t position_ = 0;
  std::size_t depth_ = 0;
  std::array<std::uint64_t, kMaxDepth> remaining_{};  // entries to come at each open level
};

// Appends CBOR to a string: definite lengths, shortest integers, and the shortest float that has the same value.
class CborWriter {
 public:
  explicit CborWriter(std::string& out) : out_(out) {}

  void write_uint(std::uint64_t n) { write_head(0, n); }
  void write_int(std::int64_t n);
  void write_float(double x);
  void write_bool(bool b) { out_.push_back(static_cast<char>(b ? 0xF5 : 0xF4)); }
  void write_null() { out_.push_back(static_cast<char>(0xF6)); }
  void write_text(std::string_view text);  // which the caller knows to be UTF-8
  void write_bytes(ConstBytes bytes);
  void begin_array(std::uint64_t elements) { write_head(4, elements); }
  void begin_map(std::uint64_t entries) { write_head(5, entries); }

 private:
  void write_head(unsigned major, std::uint64_t argument);
  void write_big_endian(std::uint64_t n, unsigned bytes);

  std::string& out_;
};

// One item and nothing behind it. Refuses what CborCursor refuses, and with kCorrupt a map that has a key twice. Time
// and memory are proportional to the input (n log n for maps).
Value cbor_decode(ConstBytes bytes);

// The inverse. Throws kInvalidArgument for what cbor_decode() would refuse: text that is not UTF-8, a key twice, more
// than CborCursor::kMaxDepth levels.
std::string cbor_encode(const Value& value);

}  // namespace weightstore
