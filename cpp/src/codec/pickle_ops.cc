#include "codec/pickle_ops.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/little_endian.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

// What follows an opcode: that many bytes, or one of these.
constexpr std::uint8_t kUnknown = 0xFF;
constexpr std::uint8_t kTwoLines = 0xFE;
constexpr std::uint8_t kCounted = 0x10;  // plus the bytes of the count

constexpr std::array<std::uint8_t, 256> make_shapes() {
  std::array<std::uint8_t, 256> shapes{};
  shapes.fill(kUnknown);
  const auto set = [&](std::uint8_t shape, auto... ops) { ((shapes[static_cast<std::uint8_t>(ops)] = shape), ...); };
  using enum PickleOp;
  set(0, kMark, kStop, kNone, kBinPersId, kReduce, kEmptyList, kAppend, kBuild, kAppends, kSetItem, kTuple, kSetItems,
      kEmptyDict, kEmptyTuple, kNewObj, kTuple1, kTuple2, kTuple3, kNewTrue, kNewFalse, kEmptySet, kAddItems,
      kFrozenSet, kNewObjEx, kStackGlobal, kMemoize);
  set(1, kBinInt1, kBinGet, kBinPut, kProto);
  set(2, kBinInt2);
  set(4, kBinInt, kLongBinGet, kLongBinPut);
  set(8, kBinFloat, kFrame);
  set(kCounted + 1, kShortBinString, kShortBinBytes, kShortBinUnicode, kLong1);
  set(kCounted + 4, kBinString, kBinBytes, kBinUnicode, kLong4);
  set(kCounted + 8, kBinUnicode8, kBinBytes8, kByteArray8);
  set(kTwoLines, kGlobal);
  return shapes;
}

constexpr std::array<std::uint8_t, 256> kShapes = make_shapes();

[[noreturn]] void fail_opcode(std::uint8_t opcode, std::size_t offset) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const std::string hex = {'0', 'x', kHex[opcode >> 4], kHex[opcode & 15]};
  throw Error(ErrorCode::kUnsupported, "the pickle has opcode " + hex + ", which torch.save() does not write")
      .at_offset(offset);
}

}  // namespace

std::optional<std::string_view> PickleScanner::take(std::uint64_t count) {
  if (count > bytes_.size() - position_) return std::nullopt;
  const auto* data = reinterpret_cast<const char*>(bytes_.data()) + position_;
  position_ += static_cast<std::size_t>(count);
  return std::string_view(data, static_cast<std::size_t>(count));
}

std::optional<std::string_view> PickleScanner::take_counted(std::size_t count_bytes) {
  const auto digits = take(count_bytes);
  if (!digits) return std::nullopt;
  return take(load_little_endian(*digits));
}

std::optional<std::string_view> PickleScanner::take_line() {
  const std::byte* begin = bytes_.data() + position_;
  const std::byte* end = std::find(begin, bytes_.data() + bytes_.size(), std::byte{'\n'});
  if (end == bytes_.data() + bytes_.size()) return std::nullopt;
  const auto line = take(static_cast<std::uint64_t>(end - begin));
  ++position_;
  return line;
}

bool PickleScanner::next(PickleInstruction& instruction) {
  if (position_ == bytes_.size()) return false;
  instruction.offset = position_;
  const auto opcode = std::to_integer<std::uint8_t>(bytes_[position_++]);
  const std::uint8_t shape = kShapes[opcode];
  instruction.op = static_cast<PickleOp>(opcode);
  if (shape == 0) return true;
  std::optional<std::string_view> argument;
  if (shape == kUnknown) {
    fail_opcode(opcode, instruction.offset);
  } else if (shape == kTwoLines) {
    argument = take_line();
    const auto name = argument ? take_line() : std::nullopt;
    if (!name) return false;
    instruction.name = *name;
  } else {
    argument = shape > kCounted ? take_counted(shape - kCounted) : take(shape);
  }
  if (!argument) return false;
  instruction.argument = *argument;
  return true;
}

std::optional<std::size_t> pickle_length(ConstBytes bytes) {
  PickleScanner scanner(bytes);
  for (PickleInstruction instruction; scanner.next(instruction);) {
    if (instruction.op == PickleOp::kStop) return scanner.position();
  }
  return std::nullopt;
}

}  // namespace weightstore
