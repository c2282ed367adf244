#include "codec/cbor.h"

#include <bit>
#include <utility>

#include "base/utf8.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

enum Major : std::uint8_t { kUnsigned, kNegativeInt, kByteString, kTextString, kList, kPairs, kTag, kOther };

// Arguments of major type 7.
constexpr std::uint8_t kFalse = 20;
constexpr std::uint8_t kTrue = 21;
constexpr std::uint8_t kNullValue = 22;
constexpr std::uint8_t kUndefined = 23;
constexpr std::uint8_t kHalf = 25;
constexpr std::uint8_t kSingle = 26;
constexpr std::uint8_t kDouble = 27;
constexpr std::uint8_t kIndefinite = 31;
constexpr std::byte kBreak{0xFF};

Error corrupt(std::string message, std::uint64_t offset) {
  return std::move(Error(ErrorCode::kCorrupt, "CBOR: " + std::move(message)).at_offset(offset));
}

const char* describe(std::uint8_t major, std::uint8_t info) {
  switch (major) {
    case kUnsigned:
      return "an unsigned integer";
    case kNegativeInt:
      return "a negative integer";
    case kByteString:
      return "bytes";
    case kTextString:
      return "text";
    case kList:
      return "an array";
    case kPairs:
      return "a map";
    default:
      break;
  }
  switch (info) {
    case kFalse:
    case kTrue:
      return "a boolean";
    case kNullValue:
    case kUndefined:
      return "null";
    case kHalf:
    case kSingle:
    case kDouble:
      return "a float";
    case kIndefinite:
      return "the end of an indefinite length";
    default:
      return "a simple value without meaning here";
  }
}

// Bits, not arithmetic: conversions in the processor would change signalling NaNs.
double widen_half(std::uint64_t half) {
  const std::uint64_t sign = (half & 0x8000) << 48;
  const std::uint64_t exponent = (half >> 10) & 0x1F;
  const std::uint64_t mantissa = half & 0x3FF;
  if (exponent == 0) {
    const double magnitude = static_cast<double>(mantissa) * 0x1p-24;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint64_t wide = exponent == 0x1F ? 0x7FF : exponent - 15 + 1023;
  return std::bit_cast<double>(sign | wide << 52 | mantissa << 42);
}

}  // namespace

void CborCursor::fail_expected(const char* wanted, const Head& found) const {
  throw corrupt(std::string("expected ") + wanted + ", found " + describe(found.major, found.info),
                first_offset_ + found.start);
}

CborCursor::Head CborCursor::take_head() {
  Head head;
  head.start = position_;
  if (at_end()) throw corrupt("ends in the middle", offset());
  const auto initial = std::to_integer<std::uint8_t>(bytes_[position_++]);
  head.major = initial >> 5;
  head.info = initial & 0x1F;
  head.argument = head.info;
  if (head.info < 24) return head;
  if (head.info > 27) {
    const bool may_be_indefinite = head.major >= kByteString && head.major != kTag;
    if (!head.indefinite() || !may_be_indefinite) {
      throw corrupt("byte that begins no item: " + std::to_string(initial), first_offset_ + head.start);
    }
    return head;
  }
  const std::size_t width = std::size_t{1} << (head.info - 24);
  if (left() < width) throw corrupt("ends in the middle", offset());
  head.argument = 0;
  for (std::size_t i = 0; i < width; ++i) {
    head.argument = head.argument << 8 | std::to_integer<std::uint64_t>(bytes_[position_++]);
  }
  return head;
}

void CborCursor::pass_tags(bool refuse_bignums) {
  while (at_tag()) {
    const Head tag = take_head();
    if (refuse_bignums && (tag.argument == 2 || tag.argument == 3)) {
      throw Error(ErrorCode::kUnsupported, "CBOR: an integer of more than 64 bits")
          .at_offset(first_offset_ + tag.start);
    }
  }
}

CborCursor::Head CborCursor::take_item() {
  if (at_tag()) pass_tags(true);
  return take_head();
}

CborKind CborCursor::peek() {
  if (at_tag()) pass_tags(true);
  if (at_end()) throw corrupt("ends in the middle", offset());
  const auto initial = std::to_integer<std::uint8_t>(bytes_[position_]);
  const std::uint8_t major = initial >> 5;
  const std::uint8_t info = initial & 0x1F;
  if (major < kTag) {
    constexpr CborKind kKinds[] = {CborKind::kUint, CborKind::kNegative, CborKind::kBytes,
                                   CborKind::kText, CborKind::kArray,    CborKind::kMap};
    return kKinds[major];
  }
  switch (info) {
    case kFalse:
    case kTrue:
      return CborKind::kBool;
    case kNullValue:
    case kUndefined:
      return CborKind::kNull;
    case kHalf:
    case kSingle:
    case kDouble:
      return CborKind::kFloat;
    default:
      fail_expected("a value", take_head());
  }
}

void CborCursor::enter(std::uint8_t major, std::size_t least_bytes) {
  const Head head = take_item();
  if (head.major != major) fail_expected(major == kList ? "an array" : "a map", head);
  if (!head.indefinite() && head.argument > left() / least_bytes) {
    throw corrupt(std::string(major == kList ? "an array of " : "a map of ") + std::to_string(head.argument) +
                      " entries, but only " + std::to_string(left()) + " bytes are left",
                  first_offset_ + head.start);
  }
  if (depth_ == kMaxDepth) {
    throw Error(ErrorCode::kLimit, "CBOR: more than " + std::to_string(kMaxDepth) + " levels inside one another")
        .at_offset(first_offset_ + head.start);
  }
  remaining_[depth_++] = head.indefinite() ? kUntilBreak : head.argument;
}

void CborCursor::enter_array() { enter(kList, 1); }

void CborCursor::enter_map() { enter(kPairs, 2); }

bool CborCursor::next_until_break() {
  if (at_end()) throw corrupt("ends inside an indefinite length", offset());
  if (bytes_[position_] != kBreak) return true;
  ++position_;
  --depth_;
  return false;
}

// The bytes behind the head of a byte or text string of definite length.
std::string_view CborCursor::take_string(const Head& head) {
  if (head.argument > left()) {
    throw corrupt(std::string(head.major == kTextString ? "text" : "a byte string") + " of " +
                      std::to_string(head.argument) + " bytes, but only " + std::to_string(left()) + " are left",
                  first_offset_ + head.start);
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + position_,
                              static_cast<std::size_t>(head.argument));
  if (head.major == kTextString) {
    const std::size_t valid = valid_utf8_prefix(text);
    if (valid != text.size()) throw corrupt("text that is not UTF-8", offset() + valid);
  }
  position_ += text.size();
  return text;
}

// A string of any form; only with `scratch` are pieces put together.
std::string_view CborCursor::take_strings(std::uint8_t major, std::string* scratch) {
  const Head head = take_item();
  if (head.major != major) fail_expected(major == kTextString ? "text" : "bytes", head);
  if (!head.indefinite()) return take_string(head);
  if (scratch != nullptr) scratch->clear();
  for (;;) {
    const Head piece = take_head();
    if (piece.major == kOther && piece.indefinite()) break;
    if (piece.major != major || piece.indefinite()) fail_expected("a piece of a string", piece);
    const std::string_view text = take_string(piece);
    if (scratch != nullptr) scratch->append(text);
  }
  return scratch != nullptr ? std::string_view(*scratch) : std::string_view();
}

std::string_view CborCursor::read_text(std::string& scratch) { return take_strings(kTextString, &scratch); }

std::string_view CborCursor::read_name() {
  const Head head = take_item();
  if (head.major != kTextString || head.indefinite()) fail_expected("the name of a field", head);
  return take_string(head);
}

ConstBytes CborCursor::read_bytes(std::string& scratch) {
  return std::as_bytes(std::span(take_strings(kByteString, &scratch)));
}

std::uint64_t CborCursor::read_any_uint() {
  const Head head = take_item();
  if (head.major != kUnsigned) fail_expected("an unsigned integer", head);
  return head.argument;
}

std::int64_t CborCursor::read_int() {
  const Head head = take_item();
  if (head.major != kUnsigned && head.major != kNegativeInt) fail_expected("an integer", head);
  if (head.argument > static_cast<std::uint64_t>(INT64_MAX)) {
    throw Error(ErrorCode::kUnsupported, "CBOR: an integer that does not fit into 64 bits with a sign")
        .at_offset(first_offset_ + head.start);
  }
  const auto n = static_cast<std::int64_t>(head.argument);
  return head.major == kUnsigned ? n : -1 - n;
}

double CborCursor::read_float() {
  const Head head = take_item();
  if (head.major == kOther) {
    if (head.info == kHalf) return widen_half(head.argument);
    if (head.info == kSingle) return std::bit_cast<float>(static_cast<std::uint32_t>(head.argument));
    if (head.info == kDouble) return std::bit_cast<double>(head.argument);
  }
  fail_expected("a float", head);
}

bool CborCursor::read_bool() {
  const Head head = take_item();
  if (head.major != kOther || (head.info != kFalse && head.info != kTrue)) fail_expected("a boolean", head);
  return head.info == kTrue;
}

void CborCursor::read_null() {
  const Head head = take_item();
  if (head.major != kOther || (head.info != kNullValue && head.info != kUndefined)) fail_expected("null", head);
}

void CborCursor::skip_value() {
  pass_tags(false);
  switch (peek()) {
    case CborKind::kArray:
      enter_array();
      while (next()) skip_value();
      break;
    case CborKind::kMap:
      enter_map();
      while (next()) {
        skip_value();
        skip_value();
      }
      break;
    case CborKind::kText:
      take_strings(kTextString, nullptr);
      break;
    case CborKind::kBytes:
      take_strings(kByteString, nullptr);
      break;
    default:
      take_head();
  }
}

}  // namespace weightstore
