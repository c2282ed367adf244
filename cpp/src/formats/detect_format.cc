// A file is what its structure says. The formats are asked one after the other, in the order of the registry.

#include <algorithm>
#include <array>
#include <string>

#include "base/little_endian.h"
#include "formats/foreign_files.h"
#include "formats/registry.h"
#include "formats/safetensors/header.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

// A file that is cut short, or whose header has a length that the format allows, or begins as headers do.
bool may_be_safetensors(std::string_view head) {
  using safetensors::kLengthBytes;
  if (head.size() <= kLengthBytes) return true;
  const auto length = load_little_endian<std::uint64_t>(reinterpret_cast<const std::byte*>(head.data()));
  return length <= safetensors::kMaxHeaderBytes || head[kLengthBytes] == '{';
}

std::string hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (!text.empty()) text += ' ';
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

}  // namespace

Format detect_format(const ByteSource& source) try {
  std::array<char, kHeadBytes> buffer;
  const auto available = static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), kHeadBytes));
  if (available == 0) throw Error(ErrorCode::kCorrupt, "the file is empty");
  source.read_at(0, {reinterpret_cast<std::byte*>(buffer.data()), available});
  const FileHead head{{buffer.data(), available}, source};
  for (const FormatSpec* spec : all_formats()) {
    if (spec->recognises(head)) return spec->id;
  }
  if (const std::string foreign = describe_foreign_file(head); !foreign.empty()) {
    throw Error(ErrorCode::kUnsupported, "this is " + foreign);
  }
  // SafeTensors has no signature. Where its reader can say more than that this is none, let it.
  if (may_be_safetensors(head.bytes)) return Format::kSafetensors;
  throw Error(ErrorCode::kUnsupported, "this has none of the formats that this library reads (its first bytes are " +
                                           hex(head.bytes.substr(0, 4)) +
                                           "); the file is damaged, or encrypted, or was written by another program")
      .known_as("header too large");
} catch (Error& error) {
  throw error.in_file(source.name());
}

}  // namespace weightstore
