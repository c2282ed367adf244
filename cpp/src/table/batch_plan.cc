#include "table/batch_plan.h"

#include <algorithm>
#include <bit>
#include <string>

#include "weightstore/error.h"

namespace weightstore::table {
namespace {

// Up to this number every stripe has a bucket, and products with scale_ fit into 64 bits.
constexpr std::uint64_t kMaxBuckets = std::uint64_t{1} << 31;
constexpr std::uint32_t kMaxStripes = 4096;

std::string text_of(const BucketRange& buckets) {
  return "buckets [" + std::to_string(buckets.begin) + ", " + std::to_string(buckets.end) + ") of " +
         std::to_string(buckets.size);
}

}  // namespace

StripeMap::StripeMap(const BucketRange& buckets, std::uint32_t max_stripes, std::size_t children)
    : buckets_(buckets), children_(children) {
  if (buckets.size > kMaxBuckets || buckets.begin >= buckets.end || buckets.end > buckets.size) {
    throw Error(ErrorCode::kInvalidArgument, "the table cannot have " + text_of(buckets) +
                                                 ": expected begin < end <= size <= " + std::to_string(kMaxBuckets));
  }
  if (max_stripes < 1 || max_stripes > kMaxStripes) {
    throw Error(ErrorCode::kInvalidArgument, "cannot make " + std::to_string(max_stripes) + " stripes; expected 1 to " +
                                                 std::to_string(kMaxStripes));
  }
  const std::uint64_t width = buckets.end - buckets.begin;
  bits_ = static_cast<unsigned>(std::bit_width(std::min<std::uint64_t>(max_stripes, width)) - 1);
  if (buckets.size > 1 && std::has_single_bit(buckets.size)) mask_ = buckets.size - 1;
  scale_ = (std::uint64_t{count()} << 32) / width;
}

BucketRange StripeMap::buckets_of(StripeRange stripes) const {
  return {first_bucket(stripes.first), stripes.last == count() ? buckets_.end : first_bucket(stripes.last),
          buckets_.size};
}

std::uint64_t StripeMap::first_bucket(std::size_t stripe) const {
  return buckets_.begin + ((std::uint64_t{stripe} << 32) + scale_ - 1) / scale_;
}

void StripeMap::refuse(std::int64_t id) const {
  if (children_ != 0 && child_of(id) >= children_) {
    throw Error(ErrorCode::kInvalidArgument, "id " + std::to_string(id) + " is of child " +
                                                 std::to_string(child_of(id)) + ", but the table has " +
                                                 std::to_string(children_) + " children");
  }
  const std::uint64_t key = static_cast<std::uint64_t>(id) & (children_ != 0 ? kChildIdMask : ~std::uint64_t{0});
  throw Error(ErrorCode::kInvalidArgument, "id " + std::to_string(id) + " lies in bucket " +
                                               std::to_string(key % buckets_.size) + ", but the table holds " +
                                               text_of(buckets_) + "; send it to the shard that owns it");
}

}  // namespace weightstore::table
