#include "checkpoint/slice_ids.h"

#include <algorithm>
#include <bit>
#include <string>

#include "file/bucket_range_text.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

// Without a branch or a division an id, as sizes are powers of two nearly always.
bool all_inside(std::span<const std::int64_t> ids, const BucketRange& slice) {
  const std::uint64_t width = slice.end - slice.begin;
  if (width == slice.size) return true;
  bool inside = true;
  if (std::has_single_bit(slice.size)) {
    const std::uint64_t mask = slice.size - 1;
    for (const std::int64_t id : ids) inside &= (static_cast<std::uint64_t>(id) & mask) - slice.begin < width;
  } else {
    for (const std::int64_t id : ids) inside &= slice.contains(id);
  }
  return inside;
}

}  // namespace

void check_ids(std::span<const std::int64_t> ids, const BucketRange& slice) {
  if (all_inside(ids, slice)) return;
  const auto outside = std::find_if_not(ids.begin(), ids.end(), [&](std::int64_t id) { return slice.contains(id); });
  throw Error(ErrorCode::kCorrupt, "has id " + std::to_string(*outside) + " of bucket " +
                                       std::to_string(static_cast<std::uint64_t>(*outside) % slice.size) +
                                       ", which is not in its slice " + slice_text(slice));
}

}  // namespace weightstore::checkpoint
