#pragma once

// How names of blocks and JSON documents spell a bucket range. On disk it is called a slice.

#include <optional>
#include <string>
#include <string_view>

#include "weightstore/table_snapshot.h"
#include "weightstore/value.h"

namespace weightstore {

// "00000@32768@65536": begin, end and size, padded to the width of size.
std::string bucket_range_text(const BucketRange& buckets);

// The inverse, with or without padding. nullopt for text that is no bucket range, or one outside [0, size).
std::optional<BucketRange> bucket_range_from_text(std::string_view text, char separator = '@');

// "0-1024-65536", the end of the name of a block in the plain layout. The inverse gives nullopt for any other text.
std::string bucket_range_key(const BucketRange& buckets);
std::optional<BucketRange> bucket_range_from_key(std::string_view text);

// From [begin, end, size] of a JSON document; throws Error(kCorrupt) that names `what` for anything else. And back.
BucketRange as_bucket_range(const Value& value, std::string_view what);
Value bucket_range_value(const BucketRange& buckets);

// False when no id can be in both. Ranges of different numbers of buckets may always share ids.
inline bool may_share_ids(const BucketRange& a, const BucketRange& b) {
  return a.size != b.size || (a.begin < b.end && b.begin < a.end);
}

}  // namespace weightstore
