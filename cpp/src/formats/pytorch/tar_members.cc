#include "formats/pytorch/tar_members.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/corrupt.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

constexpr std::uint64_t kBlock = 512;
constexpr std::uint64_t kMaxPaxBytes = 64 << 10;
// Zeros behind the last member: two blocks, and as many as fill a tape record.
constexpr std::uint64_t kMaxTail = 1 << 20;

std::string_view field(std::string_view header, std::size_t begin, std::size_t size) {
  const std::string_view text = header.substr(begin, size);
  return text.substr(0, std::min(text.find('\0'), text.size()));
}

// Octal digits with spaces around them, or a number in base 256 with the highest bit set.
std::uint64_t number(std::string_view header, std::size_t begin, std::size_t size) {
  std::uint64_t n = 0;
  if ((header[begin] & 0x80) != 0) {
    for (std::size_t i = begin + size - 8; i < begin + size; ++i) n = n << 8 | static_cast<unsigned char>(header[i]);
    const bool small =
        header[begin] == '\x80' &&
        std::all_of(header.begin() + begin + 1, header.begin() + begin + size - 8, [](char c) { return c == 0; });
    if (!small) throw corrupt("a size of more than 64 bits in the tar archive");
    return n;
  }
  std::string_view digits = field(header, begin, size);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  for (const char c : digits) {
    if (c < '0' || c > '7') throw corrupt("a number of the tar archive is not octal");
    n = n << 3 | static_cast<unsigned>(c - '0');
  }
  return n;
}

void check_sum(std::string_view header, std::uint64_t offset) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    sum += i >= 148 && i < 156 ? static_cast<unsigned char>(' ') : static_cast<unsigned char>(header[i]);
  }
  if (sum != number(header, 148, 8))
    throw corrupt("a header of the tar archive has a wrong checksum").at_offset(offset);
}

// Newer archivers put times and owners into a header of their own. It must not change what we read.
void check_pax(std::string_view text, std::uint64_t offset) {
  while (!text.empty()) {
    std::size_t length = 0;
    std::size_t digits = 0;
    for (; digits < text.size() && digits < 6 && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
      length = length * 10 + static_cast<std::size_t>(text[digits] - '0');
    }
    if (length <= digits || length > text.size()) throw corrupt("an extended header that is none").at_offset(offset);
    const std::string_view record = text.substr(digits, length - digits);
    bool harmless = false;
    for (const std::string_view key : {" mtime=", " atime=", " ctime=", " uid=", " gid=", " uname=", " gname="}) {
      harmless = harmless || record.starts_with(key);
    }
    if (!harmless)
      throw corrupt("an extended header of the tar archive changes more than times and owners").at_offset(offset);
    text.remove_prefix(length);
  }
}

}  // namespace

TarMembers read_tar(const ByteSource& source) {
  std::optional<TarMember> pickle, tensors, storages, sys_info;
  std::array<std::byte, kBlock> block;
  const std::string_view header(reinterpret_cast<const char*>(block.data()), kBlock);
  const auto foreign = [] {
    return Error(ErrorCode::kUnsupported, "this is a tar archive that torch did not write; unpack it first");
  };
  std::uint64_t position = 0;
  for (;;) {
    if (source.size() - position < kBlock) throw corrupt("the tar archive was cut short").at_offset(position);
    source.read_at(position, block);
    if (std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; })) break;
    check_sum(header, position);
    const TarMember member{position + kBlock, number(header, 124, 12)};
    if (member.size > source.size() - member.begin) throw corrupt("the tar archive was cut short").at_offset(position);
    const char kind = header[156];
    if (kind == 'x') {
      if (member.size > kMaxPaxBytes) throw corrupt("an extended header that is too long").at_offset(position);
      std::string text(static_cast<std::size_t>(member.size), '\0');
      source.read_at(member.begin, std::as_writable_bytes(std::span(text)));
      check_pax(text, position);
    } else {
      const std::string_view name = field(header, 0, 100);
      std::optional<TarMember>* slot = name == "pickle"     ? &pickle
                                       : name == "tensors"  ? &tensors
                                       : name == "storages" ? &storages
                                       : name == "sys_info" ? &sys_info
                                                            : nullptr;
      if (slot == nullptr) throw foreign();
      if ((kind != '0' && kind != '\0') || !field(header, 345, 155).empty()) {
        throw corrupt("'" + std::string(name) + "' is no plain file").at_offset(position);
      }
      if (*slot) throw corrupt("the tar archive has '" + std::string(name) + "' twice").at_offset(position);
      *slot = member;
    }
    const std::uint64_t padding = (kBlock - member.size % kBlock) % kBlock;
    position = member.begin + member.size;
    if (source.size() - position < padding) throw corrupt("the tar archive was cut short").at_offset(position);
    position += padding;
  }
  if (!pickle || !tensors || !storages) throw foreign();
  if (source.size() - position > kMaxTail)
    throw corrupt("too much behind the end of the tar archive").at_offset(position);
  std::string tail(static_cast<std::size_t>(source.size() - position), '\0');
  source.read_at(position, std::as_writable_bytes(std::span(tail)));
  if (tail.find_first_not_of('\0') != std::string::npos || tail.size() < 2 * kBlock) {
    throw corrupt("the tar archive does not end with zeros").at_offset(position);
  }
  return {*pickle, *tensors, *storages};
}

}  // namespace weightstore::pytorch
