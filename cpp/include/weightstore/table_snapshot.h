#pragma once

// A hash table at one instant, ready to be written.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weightstore/byte_producer.h"
#include "weightstore/dtype.h"
#include "weightstore/tensor.h"

namespace weightstore {

// An id lies in bucket uint64(id) mod size (of a coalesced id: its lower 52 bits); a shard owns buckets [begin, end).
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

// One value a row.
struct SlotInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;  // of one row
  std::uint64_t row_bytes = 0;

  bool operator==(const SlotInfo&) const = default;
};

// Some of the table's stripes: [first, last). Their buckets are contiguous.
struct StripeRange {
  std::size_t first = 0;
  std::size_t last = 0;
};

// Immutable and thread-safe; independent of the table, which may change or go away. Rows come in the order of stripes,
// then of their numbers; ids and all slots in the same order. The first question about the rows of a stripe walks over
// its ids (and, in a coalesced table, sorts its rows by child: at most 8 bytes a row, kept until the snapshot goes).
class TableSnapshot : public std::enable_shared_from_this<TableSnapshot> {
 public:
  virtual ~TableSnapshot() = default;

  virtual const std::string& name() const = 0;
  virtual const BucketRange& slice() const = 0;
  virtual bool coalesced() const = 0;
  virtual const std::vector<std::string>& children() const = 0;  // one, unless coalesced
  virtual const std::vector<SlotInfo>& slots() const = 0;
  virtual std::uint64_t epoch() const = 0;  // that began with this snapshot: see HashTable::changed_since()
  virtual std::uint64_t size() const = 0;   // rows in all

  virtual std::size_t stripe_count() const = 0;
  StripeRange all_stripes() const { return {0, stripe_count()}; }
  // The buckets of these stripes: a slice of the same size within slice(). The range must not be empty.
  virtual BucketRange slice_of(StripeRange stripes) const = 0;

  // Rows of one child (0 unless coalesced) in these stripes.
  virtual std::uint64_t rows(std::size_t child, StripeRange stripes) const = 0;
  // Their ids as I64 [rows], without the child's bits.
  virtual std::shared_ptr<ByteProducer> ids(std::size_t child, StripeRange stripes) const = 0;
  // Their rows of one slot, [rows, slot shape...]. Producers keep the snapshot alive; filling one again is fine.
  virtual std::shared_ptr<ByteProducer> slot(std::size_t slot, std::size_t child, StripeRange stripes) const = 0;
};

}  // namespace weightstore
