#include "codec/zip_names.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/little_endian.h"
#include "codec/zip_structures.h"

namespace weightstore {
namespace {

using namespace zip;

constexpr std::uint64_t kLargestEntry = kEntryBytes + 3 * 0xFFFF;  // with name, extra fields and comment
constexpr std::uint64_t kWindow = 256u << 10;
static_assert(kWindow > kLargestEntry);

struct Range {
  std::uint64_t begin;
  std::uint64_t end;
};

template <class T>
T field(ConstBytes bytes, std::size_t at) {
  return load_little_endian<T>(bytes.data() + at);
}

// Where the directory is, as the end record says; nullopt when there is no end record, or it says something else.
std::optional<Range> find_directory(const ByteSource& source) {
  const std::uint64_t size = source.size();
  if (size < kEndBytes) return std::nullopt;
  std::array<std::byte, kEnd64Bytes + kLocatorBytes + kEndBytes> tail{};
  const std::uint64_t there = std::min<std::uint64_t>(size, tail.size());
  source.read_at(size - there, MutableBytes(tail).last(static_cast<std::size_t>(there)));
  const ConstBytes end64 = ConstBytes(tail).first(kEnd64Bytes);
  const ConstBytes locator = ConstBytes(tail).subspan(kEnd64Bytes, kLocatorBytes);
  const ConstBytes end = ConstBytes(tail).last(kEndBytes);
  if (field<std::uint32_t>(end, 0) != kEndSignature) return std::nullopt;
  std::uint64_t length = field<std::uint32_t>(end, 12);
  std::uint64_t begin = field<std::uint32_t>(end, 16);
  if (field<std::uint32_t>(locator, 0) == kLocatorSignature && field<std::uint32_t>(end64, 0) == kEnd64Signature) {
    length = field<std::uint64_t>(end64, 40);
    begin = field<std::uint64_t>(end64, 48);
  }
  if (begin > size || length > size - begin) return std::nullopt;
  return Range{begin, begin + length};
}

std::string_view text_of(ConstBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// False when the directory is damaged.
bool visit_directory(const ByteSource& source, Range left, const std::function<bool(std::string_view)>& visit) {
  std::vector<std::byte> buffer;
  ConstBytes window;  // what lies at left.begin, as far as it is read
  while (left.begin < left.end) {
    const std::uint64_t remaining = left.end - left.begin;
    if (window.size() < std::min(remaining, kLargestEntry)) {
      buffer.resize(static_cast<std::size_t>(std::min(remaining, kWindow)));
      source.read_at(left.begin, buffer);
      window = buffer;
    }
    if (window.size() < kEntryBytes || field<std::uint32_t>(window, 0) != kEntrySignature) return false;
    const std::size_t name_length = field<std::uint16_t>(window, 28);
    const std::size_t length =
        kEntryBytes + name_length + field<std::uint16_t>(window, 30) + field<std::uint16_t>(window, 32);
    if (length > window.size()) return false;
    if (!visit(text_of(window.subspan(kEntryBytes, name_length)))) return true;
    window = window.subspan(length);
    left.begin += length;
  }
  return true;
}

}  // namespace

std::string_view first_zip_name(std::string_view head) {
  const ConstBytes header = std::as_bytes(std::span(head));
  if (header.size() <= kLocalBytes || field<std::uint32_t>(header, 0) != kLocalSignature) return {};
  return head.substr(kLocalBytes, field<std::uint16_t>(header, 26));
}

bool visit_zip_names(const ByteSource& source, const std::function<bool(std::string_view name)>& visit) {
  const auto directory = find_directory(source);
  if (directory && visit_directory(source, *directory, visit)) return true;
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), kLocalBytes + 0xFFFF)), '\0');
  source.read_at(0, std::as_writable_bytes(std::span(head)));
  if (const std::string_view first = first_zip_name(head); !first.empty()) visit(first);
  return false;
}

bool any_zip_name(const ByteSource& source, bool (*wanted)(std::string_view name)) {
  bool found = false;
  visit_zip_names(source, [&](std::string_view name) {
    found = wanted(name);
    return !found;
  });
  return found;
}

}  // namespace weightstore
