#include "codec/pickle_text.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "codec/pickle_ops.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

// Python itself refuses integers of more digits.
constexpr std::size_t kMaxDigits = 4300;

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::kCorrupt, message); }

template <class T>
T parse_number(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) fail("an argument that is no number");
  return number;
}

// The functions for single instructions return true for STOP, and false for all others.
class Rewriter {
 public:
  Rewriter(ConstBytes bytes, ChargedString& out) : bytes_(bytes), out_(out) {}

  void run() {
    put_op(PickleOp::kProto);
    put('\2');
    try {
      while (!rewrite()) {
      }
      if (position_ == bytes_.size()) return;
      begin_ = position_;
      fail(std::to_string(bytes_.size() - position_) + " bytes behind the pickle's STOP");
    } catch (Error& error) {
      error.at_offset(begin_);
      throw;
    }
  }

 private:
  bool rewrite() {
    begin_ = position_;
    if (begin_ == bytes_.size()) fail("the pickle ends before its STOP");
    const bool was_mark = after_mark_;
    after_mark_ = false;
    ++position_;
    switch (std::to_integer<char>(bytes_[begin_])) {
      case 'I':
        return integer(line(), true);
      case 'L':
        return integer(line(), false);
      case 'F':
        return big_endian(PickleOp::kBinFloat, std::bit_cast<std::uint64_t>(parse_number<double>(line())));
      case 'V':
        return text(line());
      case 'g':
        return little_endian(PickleOp::kLongBinGet, parse_number<std::uint32_t>(line()), 4);
      case 'p':
        return little_endian(PickleOp::kLongBinPut, parse_number<std::uint32_t>(line()), 4);
      case 'd':
        return container(PickleOp::kEmptyDict, was_mark);
      case 'l':
        return container(PickleOp::kEmptyList, was_mark);
      default:
        return copy();
    }
  }

  std::string_view line() {
    const auto* data = reinterpret_cast<const char*>(bytes_.data());
    const char* begin = data + position_;
    const char* end = std::find(begin, data + bytes_.size(), '\n');
    if (end == data + bytes_.size()) fail("the pickle ends inside an instruction");
    position_ = static_cast<std::size_t>(end - data) + 1;
    return {begin, end};
  }

  void put(char byte) { out_.push_back(byte); }
  void put_op(PickleOp op) { put(static_cast<char>(op)); }

  void put_number(std::uint64_t number, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) put(static_cast<char>(number >> 8 * i));
  }

  bool little_endian(PickleOp op, std::uint64_t number, std::size_t bytes) {
    put_op(op);
    put_number(number, bytes);
    return false;
  }

  bool big_endian(PickleOp op, std::uint64_t number) {
    put_op(op);
    for (int shift = 56; shift >= 0; shift -= 8) put(static_cast<char>(number >> shift));
    return false;
  }

  bool integer(std::string_view digits, bool may_be_boolean) {
    if (may_be_boolean && (digits == "00" || digits == "01")) {
      put_op(digits == "01" ? PickleOp::kNewTrue : PickleOp::kNewFalse);
      return false;
    }
    if (!may_be_boolean && digits.ends_with('L')) digits.remove_suffix(1);
    if (digits.size() > 18) return long_integer(digits);
    const auto number = parse_number<std::int64_t>(digits);
    if (number >= 0 && number < 256) return little_endian(PickleOp::kBinInt1, static_cast<std::uint64_t>(number), 1);
    if (number == static_cast<std::int32_t>(number)) {
      return little_endian(PickleOp::kBinInt, static_cast<std::uint64_t>(number), 4);
    }
    put_op(PickleOp::kLong1);
    put('\x8');
    put_number(static_cast<std::uint64_t>(number), 8);
    return false;
  }

  // Two's complement with as few bytes as hold the number and its sign.
  bool long_integer(std::string_view digits) {
    const bool is_negative = digits.starts_with('-');
    if (is_negative) digits.remove_prefix(1);
    if (digits.size() > kMaxDigits) {
      throw Error(ErrorCode::kLimit, "an integer of " + std::to_string(digits.size()) + " digits; the limit is " +
                                         std::to_string(kMaxDigits));
    }
    std::vector<std::uint32_t> words;  // little-endian
    while (!digits.empty()) {
      const std::size_t count = std::min<std::size_t>(9, digits.size());
      std::uint64_t carry = parse_number<std::uint32_t>(digits.substr(0, count));
      std::uint64_t factor = 1;
      for (std::size_t i = 0; i < count; ++i) factor *= 10;
      for (std::uint32_t& word : words) {
        carry += word * factor;
        word = static_cast<std::uint32_t>(carry);
        carry >>= 32;
      }
      if (carry != 0) words.push_back(static_cast<std::uint32_t>(carry));
      digits.remove_prefix(count);
    }
    words.push_back(0);  // room for the sign
    if (is_negative) {
      std::uint64_t carry = 1;
      for (std::uint32_t& word : words) {
        carry += static_cast<std::uint32_t>(~word);
        word = static_cast<std::uint32_t>(carry);
        carry >>= 32;
      }
    }
    const auto byte = [&](std::size_t i) { return words[i / 4] >> i % 4 * 8 & 0xFF; };
    std::size_t size = 4 * words.size();
    while (size > 1 && byte(size - 1) == ((byte(size - 2) & 0x80) != 0 ? 0xFFu : 0u)) --size;
    little_endian(PickleOp::kLong4, size, 4);
    for (std::size_t i = 0; i < size; ++i) put(static_cast<char>(byte(i)));
    return false;
  }

  // Python's codec raw_unicode_escape: latin-1, and \uXXXX and \UXXXXXXXX where the number of backslashes is odd.
  bool text(std::string_view escaped) {
    put_op(PickleOp::kBinUnicode);
    const std::size_t length_at = out_.size();
    out_.append(4, '\0');
    std::string character;
    for (std::size_t i = 0; i < escaped.size();) {
      char32_t code = static_cast<unsigned char>(escaped[i++]);
      if (code == '\\' && i < escaped.size()) {
        const char kind = escaped[i];
        if (kind == 'u' || kind == 'U') {
          code = code_point(escaped.substr(i + 1), kind == 'u' ? 4 : 8);
          i += kind == 'u' ? 5 : 9;
        } else if (kind == '\\') {  // the second one escapes nothing
          put('\\');
          ++i;
        }
      }
      character.clear();
      append_utf8(character, code);
      out_ += character;
    }
    const std::size_t length = out_.size() - length_at - 4;
    for (std::size_t i = 0; i < 4; ++i) out_[length_at + i] = static_cast<char>(length >> 8 * i);
    return false;
  }

  static char32_t code_point(std::string_view digits, std::size_t count) {
    std::uint32_t code = 0;
    const char* end = digits.data() + std::min(count, digits.size());
    const auto result = std::from_chars(digits.data(), end, code, 16);
    if (digits.size() < count || result.ec != std::errc() || result.ptr != end) fail("text with a cut escape sequence");
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("text with a character that is none of Unicode");
    return code;
  }

  // Python writes MARK and DICT, or MARK and LIST, and then adds the items.
  bool container(PickleOp empty, bool was_mark) {
    if (!was_mark) {
      throw Error(ErrorCode::kUnsupported, "a dict or list that is made with its items, which Python does not write");
    }
    out_.pop_back();
    put_op(empty);
    return false;
  }

  // An instruction that protocol 2 has as well.
  bool copy() {
    PickleScanner scanner(bytes_.subspan(begin_));
    PickleInstruction instruction;
    try {
      if (!scanner.next(instruction)) fail("the pickle ends inside an instruction");
    } catch (Error& error) {
      error.shift_offset(begin_);
      throw;
    }
    if (instruction.op == PickleOp::kProto) fail("a protocol number inside a pickle of protocol 0 or 1");
    position_ = begin_ + scanner.position();
    out_.append(reinterpret_cast<const char*>(bytes_.data()) + begin_, scanner.position());
    after_mark_ = instruction.op == PickleOp::kMark;
    return instruction.op == PickleOp::kStop;
  }

  const ConstBytes bytes_;
  ChargedString& out_;
  std::size_t begin_ = 0;     // of the instruction
  std::size_t position_ = 0;  // behind it
  bool after_mark_ = false;
};

}  // namespace

ChargedString to_protocol_2(ConstBytes bytes, MemoryBudget& memory) {
  ChargedString out(memory);
  out.reserve(bytes.size());
  Rewriter(bytes, out).run();
  return out;
}

}  // namespace weightstore
