#pragma once

// A snapshot of a hash table, and the types that describe tables.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weightstore/byte_producer.h"
#include "weightstore/dtype.h"
#include "weightstore/tensor.h"

namespace weightstore {

// The buckets [begin, end) of `size` buckets in all. The bucket of an id is uint64(id) mod size; for a table with
// children, of the lower 52 bits of the id. A shard holds the ids of a bucket range.
struct BucketRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 65536;
  std::uint64_t size = 65536;

  bool contains(std::int64_t id) const {
    const std::uint64_t bucket = static_cast<std::uint64_t>(id) % size;
    return begin <= bucket && bucket < end;
  }
  bool operator==(const BucketRange&) const = default;
};

// A slot of a table: one value a row.
struct SlotInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;  // of one row
  std::uint64_t row_bytes = 0;

  bool operator==(const SlotInfo&) const = default;
};

// The stripes [first, last) of a table. Their buckets are contiguous.
struct StripeRange {
  std::size_t first = 0;
  std::size_t last = 0;
};

// The rows of a table at one instant. The snapshot is independent of the table, which may change or be destroyed.
// Immutable and thread-safe.
//
// Rows are in the order of stripes, and within a stripe in the order of row numbers; ids and all slots have the same
// order. The first question about the rows of a stripe scans its ids. In a table with children it also sorts the rows
// by child, which takes up to 8 bytes a row until the snapshot is destroyed.
class TableSnapshot : public std::enable_shared_from_this<TableSnapshot> {
 public:
  virtual ~TableSnapshot() = default;

  virtual const std::string& name() const = 0;
  virtual const BucketRange& buckets() const = 0;
  virtual bool coalesced() const = 0;
  virtual const std::vector<std::string>& children() const = 0;  // one, unless the table is coalesced
  virtual const std::vector<SlotInfo>& slots() const = 0;
  virtual std::uint64_t epoch() const = 0;  // the epoch that this snapshot began: see HashTable::changed_since()
  virtual std::uint64_t size() const = 0;   // all rows

  virtual std::size_t stripe_count() const = 0;
  StripeRange all_stripes() const { return {0, stripe_count()}; }
  // The buckets of these stripes: a part of buckets(). There must be at least one stripe.
  virtual BucketRange buckets_of(StripeRange stripes) const = 0;

  // The number of rows of one child (0 unless the table is coalesced) in these stripes.
  virtual std::uint64_t rows(std::size_t child, StripeRange stripes) const = 0;
  // The ids of these rows, as I64 [rows], without the bits of the child.
  virtual std::shared_ptr<ByteProducer> ids(std::size_t child, StripeRange stripes) const = 0;
  // The values of one slot in these rows, [rows, slot shape...]. A producer keeps the snapshot alive and may be filled
  // more than once.
  virtual std::shared_ptr<ByteProducer> slot(std::size_t slot, std::size_t child, StripeRange stripes) const = 0;
};

}  // namespace weightstore
