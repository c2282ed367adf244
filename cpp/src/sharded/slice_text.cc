#include "sharded/slice_text.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace weightstore::sharded {
namespace {

std::string padded(std::uint64_t n, std::size_t width) {
  const std::string digits = std::to_string(n);
  return std::string(width - std::min(width, digits.size()), '0') + digits;
}

}  // namespace

std::string slice_text(const BucketRange& slice) {
  const std::string size = std::to_string(slice.size);
  return padded(slice.begin, size.size()) + "@" + padded(slice.end, size.size()) + "@" + size;
}

std::optional<BucketRange> slice_from_text(std::string_view text, char separator) {
  std::array<std::uint64_t, 3> numbers{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && (at == end || *at++ != separator)) return std::nullopt;
    const auto result = std::from_chars(at, end, numbers[i]);
    if (result.ec != std::errc()) return std::nullopt;
    at = result.ptr;
  }
  const BucketRange slice{numbers[0], numbers[1], numbers[2]};
  if (at != end || slice.size == 0 || slice.begin > slice.end || slice.end > slice.size) return std::nullopt;
  return slice;
}

}  // namespace weightstore::sharded
