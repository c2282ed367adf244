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

// The ids of a batch that belong to one stripe, and the position of each in the batch.
struct StripeBatch {
  std::span<const std::int64_t> ids;
  std::span<const std::uint32_t> positions;
};

// The values of a slot for a batch, in the order of the whole batch.
struct SlotValues {
  std::size_t slot;
  const std::byte* bytes;
};

// The state of a stripe that a snapshot keeps.
struct PinnedColumn {
  PageShape shape;
  std::vector<PageRef> pages;
};
struct PinnedStripe {
  std::uint64_t size = 0;           // live rows
  std::uint32_t rows = 0;           // all live rows have smaller numbers
  std::vector<std::uint64_t> live;  // one bit a row; empty if all rows are live
  PinnedColumn ids;
  std::vector<PinnedColumn> slots;
};

// Thread-compatible. Callers lock mutex(): shared for const functions, exclusive for others. add_slot(), clear() and
// pin() need the whole table for themselves instead (ForkSafeLock::exclusive()).
//
// Rows are numbered from 0. A row below rows_ is either live (its bit in live_ is set and an entry of the index refers
// to it) or on the free list. Every column has pages for all rows below rows_.
class Stripe {
 public:
  using Initializers = std::vector<std::shared_ptr<const RowInitializer>>;

  // `fresh` touches the memory of all stripes of a table, and outlives them.
  Stripe(std::uint64_t secret, std::uint32_t page_rows, io::FreshPages& fresh)
      : fresh_(fresh), index_(secret, fresh), page_rows_(page_rows), ids_(8, page_rows, fresh) {}

  std::shared_mutex& mutex() const { return mutex_; }

  std::uint64_t size() const { return index_.size(); }
  // reserve() makes room for this many rows in all. index_for() does the part that can fail, so that a table can
  // reserve in all its stripes or in none.
  std::optional<IdIndex> index_for(std::uint64_t rows) const { return index_.with_room(rows); }
  void reserve(std::uint64_t rows, std::optional<IdIndex> index);
  void clear(std::uint32_t epoch);
  void add_slot(const SlotInfo& slot, const RowInitializer& initializer, std::uint32_t epoch);
  void drop_last_slot() { slots_.pop_back(); }

  // Row numbers, or kNoRow for unknown ids, in the order of `batch`.
  void find(const StripeBatch& batch, std::uint32_t* rows) const;
  // As find(), and copies the values of `slot` to their positions in `out`; zeros for unknown ids.
  void read(const StripeBatch& batch, std::size_t slot, std::uint32_t* rows, std::byte* out) const;
  // Finds or creates rows and writes `values`; of equal ids the last one wins. Slots of new rows without values are
  // initialized. `rows` are as find() gives them. Without values, existing rows do not count as changed.
  void upsert(const StripeBatch& batch, std::span<const SlotValues> values, const Initializers& initializers,
              std::uint32_t epoch, std::uint32_t* rows);
  // Copies the values of `slot` in known rows to their positions in `out`.
  void gather(const StripeBatch& batch, std::size_t slot, const std::uint32_t* rows, std::byte* out) const;
  // Returns the number of known ids.
  std::size_t write(const StripeBatch& batch, const SlotValues& values, std::uint32_t epoch);
  // As above, by row numbers of the table, whose lowest `bits` are the stripe. Rows that are not live count as unknown.
  void read_rows(const StripeBatch& numbers, unsigned bits, std::size_t slot, std::byte* out) const;
  std::size_t write_rows(const StripeBatch& numbers, unsigned bits, const SlotValues& values, std::uint32_t epoch);
  std::size_t touch(const StripeBatch& batch, std::size_t version, std::size_t freq, std::int64_t step,
                    std::uint32_t epoch);
  // Returns the number of erased rows.
  std::size_t erase(const StripeBatch& batch, std::uint32_t epoch);
  // Erases the rows whose value in an I64 slot is below `limit`.
  std::uint64_t erase_below(std::size_t slot, std::int64_t limit, std::uint32_t epoch);

  void append_ids(std::vector<std::int64_t>& ids) const;
  // Returns false if the stripe no longer remembers all erasures since `epoch`.
  bool append_changes(std::uint32_t epoch, HashTable::Changes& changes) const;

  PinnedStripe pin() const;

 private:
  struct Erasure {
    std::int64_t id;
    std::uint32_t epoch;
  };

  template <class Prefetch, class Visit>
  void for_each_known(const StripeBatch& batch, const Column* column, Prefetch prefetch, Visit visit) const;
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
