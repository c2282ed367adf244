#include "checkpoint/check_ids.h"

#include <algorithm>
#include <bit>
#include <string>

#include "file/bucket_range_text.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

// The number of buckets is nearly always a power of two: then no id needs a branch or a division.
bool all_inside(std::span<const std::int64_t> ids, const BucketRange& buckets) {
  const std::uint64_t width = buckets.end - buckets.begin;
  if (width == buckets.size) return true;
  bool inside = true;
  if (std::has_single_bit(buckets.size)) {
    const std::uint64_t mask = buckets.size - 1;
    for (const std::int64_t id : ids) inside &= (static_cast<std::uint64_t>(id) & mask) - buckets.begin < width;
  } else {
    for (const std::int64_t id : ids) inside &= buckets.contains(id);
  }
  return inside;
}

}  // namespace

void check_ids(std::span<const std::int64_t> ids, const BucketRange& buckets) {
  if (all_inside(ids, buckets)) return;
  const auto outside = std::find_if_not(ids.begin(), ids.end(), [&](std::int64_t id) { return buckets.contains(id); });
  throw Error(ErrorCode::kCorrupt, "has id " + std::to_string(*outside) + " of bucket " +
                                       std::to_string(static_cast<std::uint64_t>(*outside) % buckets.size) +
                                       ", which is not in the range of its block, " + bucket_range_text(buckets));
}

}  // namespace weightstore::checkpoint
