#pragma once

// Slices of a table as names of files and blocks and JSON documents spell them.

#include <optional>
#include <string>
#include <string_view>

#include "weightstore/table_snapshot.h"
#include "weightstore/value.h"

namespace weightstore {

// "00000@32768@65536": begin, end and size, padded to the width of size.
std::string slice_text(const BucketRange& slice);

// The inverse, with or without padding; nullopt for what is not a slice inside [0, size).
std::optional<BucketRange> slice_from_text(std::string_view text, char separator = '@');

// "0-1024-65536", which follows behind a slash; and back, nullopt for anything else.
std::string slice_key(const BucketRange& slice);
std::optional<BucketRange> slice_from_key(std::string_view text);

// [begin, end, size] of a JSON document; Error(kCorrupt) naming `what` for anything else. And back.
BucketRange as_slice(const Value& value, std::string_view what);
Value slice_value(const BucketRange& slice);

// True unless no id can be in both. Slices of different sizes cut the ids in unrelated ways.
inline bool may_share_ids(const BucketRange& a, const BucketRange& b) {
  return a.size != b.size || (a.begin < b.end && b.begin < a.end);
}

}  // namespace weightstore
