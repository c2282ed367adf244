#pragma once

// Reads and writes CBOR (RFC 8949): a cursor that reads one item after another, a writer, and functions for whole
// trees.

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

// Reads CBOR items one after another, without building a tree. It compares every length with the number of bytes that
// are left before it uses the length, so the cost of any input is proportional to its size.
//
// It accepts indefinite lengths, integers and lengths in a longer form than necessary, and `undefined` as null. It
// skips tags. It refuses
//  - with Error(kCorrupt): input that RFC 8949 calls not well-formed, text that is not UTF-8, other simple values, and
//    an item of another kind than the caller asks for;
//  - with Error(kUnsupported): integers outside [-2^63, 2^64), including bignums;
//  - with Error(kLimit): more than kMaxDepth nested arrays and maps.
// Errors have the offset of the item.
//
// The bytes must outlive the cursor. A copy of a cursor moves independently, so that a caller can look ahead with a
// copy. Used by one thread at a time.
class CborCursor {
 public:
  static constexpr std::size_t kMaxDepth = 128;

  // `first_offset` is the offset of bytes[0] in its file, for errors.
  explicit CborCursor(ConstBytes bytes, std::uint64_t first_offset = 0) : bytes_(bytes), first_offset_(first_offset) {}

  // The kind of the next item. Skips the tags before it, but not the item.
  CborKind peek();

  // Enters an array or a map. The caller then calls next() before each element of an array, or before each key of a
  // map, and reads or skips the element (or the key and its value). next() returns false at the end, and leaves the
  // array or map.
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

  // Reads text. The result points into the input, or into `scratch` if the text is stored in pieces.
  std::string_view read_text(std::string& scratch);
  // Reads the name of a field: text that must be in one piece. The result points into the input.
  std::string_view read_name();
  // A fast path before read_name(): skips a name that equals `name` and returns true; otherwise returns false and does
  // not move. It also returns false for an equal name in a longer form than necessary, so callers must go on with
  // read_name().
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
    // Most numbers are below 24: the first byte is the number.
    if (!at_end() && bytes_[position_] < std::byte{24}) return std::to_integer<std::uint64_t>(bytes_[position_++]);
    return read_any_uint();
  }
  std::int64_t read_int();  // accepts an unsigned integer that fits
  double read_float();      // accepts no integer
  bool read_bool();
  void read_null();

  // Skips one item with everything inside it, after checking that it is well-formed.
  void skip_value();

  bool at_end() const { return position_ == bytes_.size(); }
  // The offset of the next byte in the file, as in errors.
  std::uint64_t offset() const { return first_offset_ + position_; }

 private:
  // Marks an indefinite length. No count has this value, because counts are compared with the number of bytes that are
  // left.
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
  std::array<std::uint64_t, kMaxDepth> remaining_{};  // entries left in each open array or map
};

// Appends CBOR to a string. Writes definite lengths, the shortest form of integers, and the shortest float of the same
// value.
class CborWriter {
 public:
  explicit CborWriter(std::string& out) : out_(out) {}

  void write_uint(std::uint64_t n) { write_head(0, n); }
  void write_int(std::int64_t n);
  void write_float(double x);
  void write_bool(bool b) { out_.push_back(static_cast<char>(b ? 0xF5 : 0xF4)); }
  void write_null() { out_.push_back(static_cast<char>(0xF6)); }
  void write_text(std::string_view text);  // must be UTF-8
  void write_bytes(ConstBytes bytes);
  void begin_array(std::uint64_t elements) { write_head(4, elements); }
  void begin_map(std::uint64_t entries) { write_head(5, entries); }

 private:
  void write_head(unsigned major, std::uint64_t argument);
  void write_big_endian(std::uint64_t n, unsigned bytes);

  std::string& out_;
};

// Decodes bytes that hold exactly one item. Refuses what CborCursor refuses, and with Error(kCorrupt) duplicate keys of
// a map and bytes after the item. Memory is proportional to the input, and so is time, except that maps take n log n.
Value cbor_decode(ConstBytes bytes);

// The inverse of cbor_decode(). Throws Error(kInvalidArgument) for values that cbor_decode() would refuse: text that is
// not UTF-8, duplicate keys, more than CborCursor::kMaxDepth nested arrays and maps.
std::string cbor_encode(const Value& value);

}  // namespace weightstore
