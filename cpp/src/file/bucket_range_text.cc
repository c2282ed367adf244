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

std::string bucket_range_text(const BucketRange& buckets) {
  const std::string size = std::to_string(buckets.size);
  return padded(buckets.begin, size.size()) + "@" + padded(buckets.end, size.size()) + "@" + size;
}

std::optional<BucketRange> bucket_range_from_text(std::string_view text, char separator) {
  std::array<std::uint64_t, 3> numbers{};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && (at == end || *at++ != separator)) return std::nullopt;
    const auto result = std::from_chars(at, end, numbers[i]);
    if (result.ec != std::errc()) return std::nullopt;
    at = result.ptr;
  }
  const BucketRange buckets{numbers[0], numbers[1], numbers[2]};
  if (at != end || buckets.size == 0 || buckets.begin > buckets.end || buckets.end > buckets.size) return std::nullopt;
  return buckets;
}

std::string bucket_range_key(const BucketRange& buckets) {
  return std::to_string(buckets.begin) + "-" + std::to_string(buckets.end) + "-" + std::to_string(buckets.size);
}

std::optional<BucketRange> bucket_range_from_key(std::string_view text) {
  const auto buckets = bucket_range_from_text(text, '-');
  // Only as bucket_range_key() writes it: with leading zeros it would be another name.
  return buckets && bucket_range_key(*buckets) == text ? buckets : std::nullopt;
}

BucketRange as_bucket_range(const Value& value, std::string_view what) {
  const auto* list = value.get_if<Value::List>();
  if (list == nullptr || list->size() != 3) fail_field(what);
  const BucketRange buckets{as_uint((*list)[0], what), as_uint((*list)[1], what), as_uint((*list)[2], what)};
  if (buckets.size == 0 || buckets.begin > buckets.end || buckets.end > buckets.size) fail_field(what);
  return buckets;
}

Value bucket_range_value(const BucketRange& buckets) { return Value::List{buckets.begin, buckets.end, buckets.size}; }

}  // namespace weightstore
