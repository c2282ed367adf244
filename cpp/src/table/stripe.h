#pragma once

// One stripe of a hash table: the ids of a contiguous range of buckets, and their rows.

#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <span>
#include <vector>

#include "table/id_index.h"
#include "table/initializer.h"
#include "table/row_pages.h"
#include "weightstore/hash_table.h"

namespace weightstore::table {

inline constexpr std::uint32_t kNoRow = 0xFFFFFFFF;

// The part of a batch that belongs to a stripe: its ids, and where in the batch each of them is.
struct BatchPart {
  std::span<const std::int64_t> ids;
  std::span<const std::uint32_t> positions;
};

// Values of a slot for the rows of a batch, in the order of the batch.
struct SlotValues {
  std::size_t slot;
  const std::byte* bytes;
};

// A stripe as a snapshot keeps it.
struct PinnedColumn {
  PageShape shape;
  std::vector<PageRef> pages;
};
struct PinnedStripe {
  std::uint64_t size = 0;           // live rows
  std::uint32_t rows = 0;           // rows ever used: live ones are below
  std::vector<std::uint64_t> live;  // a bit a row; empty when all are
  PinnedColumn ids;
  std::vector<PinnedColumn> slots;
};

// Thread-compatible, with a lock for its callers: const calls need it shared, others exclusive - or the whole table to
// themselves, which add_slot(), clear() and pin() take for granted.
//
// Rows are numbered from 0. A row below rows_ is live (its bit in live_ is set, an entry of the index refers to it) or
// on the free list; every column has pages for all rows below rows_.
class Stripe {
 public:
  using Initializers = std::vector<std::shared_ptr<const RowInitializer>>;

  // `fresh` is the table's, which touches memory for all its stripes.
  Stripe(std::uint64_t secret, std::uint32_t page_rows, io::FreshPages& fresh)
      : fresh_(fresh), index_(secret, fresh), page_rows_(page_rows), ids_(8, page_rows, fresh) {}

  std::shared_mutex& mutex() const { return mutex_; }

  std::uint64_t size() const { return index_.size(); }
  // Room for so many rows in all: what can fail first, so that a table reserves in all its stripes or in none.
  std::optional<IdIndex> index_for(std::uint64_t rows) const { return index_.with_room(rows); }
  void reserve(std::uint64_t rows, std::optional<IdIndex> index);
  void clear(std::uint32_t epoch);
  void add_slot(const SlotInfo& slot, const RowInitializer& initializer, std::uint32_t epoch);
  void drop_last_slot() { slots_.pop_back(); }

  // Row numbers, or kNoRow; in the order of the part.
  void find(const BatchPart& part, std::uint32_t* rows) const;
  // The same, and bytes of `slot` to their places in `out`; zeros for unknown ids.
  void read(const BatchPart& part, std::size_t slot, std::uint32_t* rows, std::byte* out) const;
  // Finds or creates; writes `values`, the last of equal ids last. Slots of new rows without values are initialized.
  // `rows` as find() gives them. Without values, rows that were there do not count as changed.
  void upsert(const BatchPart& part, std::span<const SlotValues> values, const Initializers& initializers,
              std::uint32_t epoch, std::uint32_t* rows);
  // Bytes of `slot` in known rows to their places in `out`.
  void gather(const BatchPart& part, std::size_t slot, const std::uint32_t* rows, std::byte* out) const;
  // Returns how many ids were known.
  std::size_t write(const BatchPart& part, const SlotValues& values, std::uint32_t epoch);
  // The same for rows, by numbers whose lowest `bits` are the stripe's. Those that are not live count as unknown.
  void read_rows(const BatchPart& numbers, unsigned bits, std::size_t slot, std::byte* out) const;
  std::size_t write_rows(const BatchPart& numbers, unsigned bits, const SlotValues& values, std::uint32_t epoch);
  std::size_t touch(const BatchPart& part, std::size_t version, std::size_t freq, std::int64_t step,
                    std::uint32_t epoch);
  // Returns how many rows there were.
  std::size_t erase(const BatchPart& part, std::uint32_t epoch);
  // Erases rows whose value in a slot of I64 is below `limit`.
  std::uint64_t erase_below(std::size_t slot, std::int64_t limit, std::uint32_t epoch);

  void append_ids(std::vector<std::int64_t>& ids) const;
  // False when erasures of `epoch` or later are forgotten.
  bool append_changes(std::uint32_t epoch, HashTable::Changes& changes) const;

  PinnedStripe pin() const;

 private:
  struct Erasure {
    std::int64_t id;
    std::uint32_t epoch;
  };

  template <class Prefetch, class Visit>
  void for_each_known(const BatchPart& part, const Column* column, Prefetch prefetch, Visit visit) const;
  template <class Visit>
  void for_each_live(Visit visit) const;
  std::int64_t id_of(std::uint32_t row) const;
  bool is_live(std::uint64_t row) const { return row < rows_ && (live_[row / 64] >> (row % 64) & 1) != 0; }
  std::uint32_t new_row();
  void erase_entry(IdIndex::Entry* entry, std::uint32_t epoch);
  void log_erasure(std::int64_t id, std::uint32_t epoch);

  mutable std::shared_mutex mutex_;
  io::FreshPages& fresh_;
  IdIndex index_;
  const std::uint32_t page_rows_;
  std::uint32_t rows_ = 0;
  std::uint64_t expected_rows_ = 0;
  std::vector<std::uint64_t> live_;
  std::vector<std::uint32_t> free_;  // taken from the back
  Column ids_;
  std::vector<Column> slots_;
  std::vector<Erasure> erasures_;      // of the latest epochs, in order
  std::uint32_t forgotten_epoch_ = 0;  // erasures of this epoch and before may be missing
};

}  // namespace weightstore::table
