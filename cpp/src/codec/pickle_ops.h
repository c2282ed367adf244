#pragma once

// The instructions of a pickle: opcodes and their arguments, without what they do.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "weightstore/byte_source.h"

namespace weightstore {

enum class PickleOp : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kEmptyList = ']',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kEmptyTuple = ')',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8A,
  kLong4 = 0x8B,
  kShortBinUnicode = 0x8C,
  kBinUnicode8 = 0x8D,
  kBinBytes8 = 0x8E,
  kEmptySet = 0x8F,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kNewObjEx = 0x92,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

struct PickleInstruction {
  PickleOp op = PickleOp::kStop;
  std::size_t offset = 0;     // of the opcode
  std::string_view argument;  // without its length; for GLOBAL the module. Only of an opcode that has one
  std::string_view name;      // the second line of GLOBAL, and only of it
};

// Takes instructions off the front of a stream. Opcodes of protocols 0 and 1, of the extension registry, POP and DUP
// are refused with kUnsupported: nothing that saves tensors writes them.
class PickleScanner {
 public:
  explicit PickleScanner(ConstBytes bytes) : bytes_(bytes) {}

  // False when the bytes end before the instruction does. Changes only the fields that the instruction has: most have
  // no argument, and a compressed pickle can have many of them for a byte of the file.
  bool next(PickleInstruction& instruction);

  // Bytes taken so far.
  std::size_t position() const { return position_; }

 private:
  std::optional<std::string_view> take(std::uint64_t count);
  std::optional<std::string_view> take_counted(std::size_t count_bytes);
  std::optional<std::string_view> take_line();

  ConstBytes bytes_;
  std::size_t position_ = 0;
};

// The length of the pickle at the start of `bytes`, up to and with its STOP; nullopt when it does not end there. Time
// is that of its instructions, memory none.
std::optional<std::size_t> pickle_length(ConstBytes bytes);

}  // namespace weightstore
