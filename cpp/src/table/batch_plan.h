#pragma once

// Which stripe an id belongs to, and a batch of ids sorted by stripe.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "table/stripe.h"
#include "weightstore/table_snapshot.h"

namespace weightstore::table {

// Divides the buckets of a table into stripes: a power of two of them, with about the same number of buckets each.
// Immutable and thread-safe.
class StripeMap {
 public:
  // `children` is 0 for a table that is not coalesced. Throws Error(kInvalidArgument) for an empty range of buckets.
  StripeMap(const BucketRange& buckets, std::uint32_t max_stripes, std::size_t children);

  std::size_t count() const { return std::size_t{1} << bits_; }
  // This many low bits of a row number are the stripe.
  unsigned bits() const { return bits_; }

  // count() for an id that the table cannot hold.
  std::size_t stripe_of(std::int64_t id) const {
    auto key = static_cast<std::uint64_t>(id);
    if (children_ != 0) {
      if (child_of(id) >= children_) return count();
      key &= kChildIdMask;
    }
    const std::uint64_t bucket = mask_ != 0 ? key & mask_ : key % buckets_.size;
    const std::uint64_t offset = bucket - buckets_.begin;  // wraps to a large number for a bucket below `begin`
    return offset < buckets_.end - buckets_.begin ? (offset * scale_) >> 32 : count();
  }

  const BucketRange& buckets() const { return buckets_; }
  BucketRange buckets_of(StripeRange stripes) const;

  // Throws Error(kInvalidArgument) that says what is wrong with an id that the table cannot hold.
  [[noreturn]] void refuse(std::int64_t id) const;

 private:
  std::uint64_t first_bucket(std::size_t stripe) const;

  BucketRange buckets_;
  std::size_t children_;
  unsigned bits_ = 0;
  std::uint64_t mask_ = 0;   // buckets_.size - 1 if the size is a power of two and not 1, else 0
  std::uint64_t scale_ = 0;  // stripes per bucket, as a fixed-point number with 32 fractional bits
};

// A batch of ids sorted by stripe. Within a stripe the ids have the order of the batch. Positions have 32 bits, so
// callers cut larger batches into pieces of kMaxIds.
class BatchPlan {
 public:
  static constexpr std::size_t kMaxIds = std::size_t{1} << 20;

  // stripe_of(id) is below `stripes`, or equal to `stripes` for an id that the table cannot hold.
  template <class StripeOf>
  BatchPlan(std::span<const std::int64_t> ids, std::size_t stripes, const StripeOf& stripe_of)
      : size_(ids.size()),
        begins_(stripes + 2),
        ids_(std::make_unique_for_overwrite<std::int64_t[]>(ids.size())),
        positions_(std::make_unique_for_overwrite<std::uint32_t[]>(ids.size())) {
    const auto stripe_of_id = std::make_unique_for_overwrite<std::uint16_t[]>(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::size_t stripe = stripe_of(ids[i]);
      stripe_of_id[i] = static_cast<std::uint16_t>(stripe);
      ++begins_[stripe + 1];
    }
    for (std::size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
    std::vector<std::size_t> next(begins_.begin(), begins_.end() - 1);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::size_t to = next[stripe_of_id[i]]++;
      ids_[to] = ids[i];
      positions_[to] = static_cast<std::uint32_t>(i);
    }
  }

  std::size_t size() const { return size_; }
  StripeBatch batch(std::size_t stripe) const {
    const std::size_t begin = begins_[stripe];
    const std::size_t count = begins_[stripe + 1] - begin;
    return {{ids_.get() + begin, count}, {positions_.get() + begin, count}};
  }
  // The ids that the table cannot hold.
  StripeBatch outside() const { return batch(begins_.size() - 2); }

 private:
  std::size_t size_;
  std::vector<std::size_t> begins_;
  std::unique_ptr<std::int64_t[]> ids_;
  std::unique_ptr<std::uint32_t[]> positions_;
};

}  // namespace weightstore::table
