#pragma once

// Slices of a table as file and block names spell them.

#include <optional>
#include <string>
#include <string_view>

#include "weightstore/table_snapshot.h"

namespace weightstore::sharded {

// "00000@32768@65536": begin, end and size, padded to the width of size.
std::string slice_text(const BucketRange& slice);

// The inverse, with or without padding; nullopt for what is not a slice inside [0, size).
std::optional<BucketRange> slice_from_text(std::string_view text, char separator = '@');

// True unless no id can be in both. Slices of different sizes cut the ids in unrelated ways.
inline bool may_share_ids(const BucketRange& a, const BucketRange& b) {
  return a.size != b.size || (a.begin < b.end && b.begin < a.end);
}

}  // namespace weightstore::sharded
