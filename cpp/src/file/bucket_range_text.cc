#include "file/bucket_range_text.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "codec/json_fields.h"

namespace weightstore {
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

std::string slice_key(const BucketRange& slice) {
  return std::to_string(slice.begin) + "-" + std::to_string(slice.end) + "-" + std::to_string(slice.size);
}

std::optional<BucketRange> slice_from_key(std::string_view text) {
  const auto slice = slice_from_text(text, '-');
  // Only as it is written: leading zeros would be another name.
  return slice && slice_key(*slice) == text ? slice : std::nullopt;
}

BucketRange as_slice(const Value& value, std::string_view what) {
  const auto* list = value.get_if<Value::List>();
  if (list == nullptr || list->size() != 3) fail_field(what);
  const BucketRange slice{as_uint((*list)[0], what), as_uint((*list)[1], what), as_uint((*list)[2], what)};
  if (slice.size == 0 || slice.begin > slice.end || slice.end > slice.size) fail_field(what);
  return slice;
}

Value slice_value(const BucketRange& slice) { return Value::List{slice.begin, slice.end, slice.size}; }

}  // namespace weightstore
