#include "table/stripe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "weightstore/error.h"

// A stripe processes a batch in groups: it first prefetches the index entries of all ids of a group, then all their
// rows, and then copies the bytes. The cache misses of many rows overlap, so that a row costs a fraction of the two
// cache misses that it needs.

namespace weightstore::table {
namespace {

constexpr std::size_t kGroup = 64;
constexpr std::uint32_t kMaxRows = std::numeric_limits<std::uint32_t>::max() - 1;
constexpr std::size_t kLeastErasures = 4096;  // how many erasures are remembered at least

template <int kWrite>
void prefetch_row(const std::byte* row, std::uint64_t bytes) {
  constexpr std::uint64_t kLine = 64;
  constexpr std::uint64_t kMost = 8 * kLine;  // the hardware prefetches the rest of a longer row
  for (std::uint64_t i = 0; i < std::min(bytes, kMost); i += kLine) __builtin_prefetch(row + i, kWrite);
  asm volatile("");  // otherwise GCC removes calls of this function, as if it had no effect
}

// Rows are short: an inlined loop is faster than a call.
inline void copy_row(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  constexpr std::uint64_t kLong = 512;
  if (bytes > kLong || bytes % 16 != 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  for (std::uint64_t i = 0; i < bytes; i += 16) std::memcpy(to + i, from + i, 16);
}

std::int64_t load_int64(const std::byte* from) {
  std::int64_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void store_int64(std::byte* to, std::int64_t value) { std::memcpy(to, &value, sizeof value); }

}  // namespace

// Calls visit(i, entry) for batch.ids[i] in order; the entry is null for unknown ids. Rows of `column` are on their way
// to the cache by then, as is the memory that prefetch(i) asked for.
template <class Prefetch, class Visit>
void Stripe::for_each_known(const StripeBatch& batch, const Column* column, Prefetch prefetch, Visit visit) const {
  std::array<std::uint64_t, kGroup> homes;
  std::array<IdIndex::Entry*, kGroup> entries;
  for (std::size_t begin = 0; begin < batch.ids.size(); begin += kGroup) {
    const std::size_t count = std::min(kGroup, batch.ids.size() - begin);
    if (index_.has_entries()) {
      for (std::size_t i = 0; i < count; ++i) {
        homes[i] = index_.home(batch.ids[begin + i]);
        index_.prefetch(homes[i]);
      }
      for (std::size_t i = 0; i < count; ++i) {
        prefetch(begin + i);
        entries[i] = index_.find(batch.ids[begin + i], homes[i]);
        if (column == nullptr || entries[i] == nullptr) continue;
        prefetch_row<0>(column->row(entries[i]->row()), column->shape().row_bytes());
      }
    } else {
      entries.fill(nullptr);
    }
    for (std::size_t i = 0; i < count; ++i) visit(begin + i, entries[i]);
  }
}

template <class Visit>
void Stripe::for_each_live(Visit visit) const {
  for (std::size_t i = 0; i < live_.size(); ++i) {
    for (std::uint64_t bits = live_[i]; bits != 0; bits &= bits - 1) {
      visit(static_cast<std::uint32_t>(i * 64 + static_cast<std::size_t>(std::countr_zero(bits))));
    }
  }
}

std::int64_t Stripe::id_of(std::uint32_t row) const { return load_int64(ids_.row(row)); }

void Stripe::reserve(std::uint64_t rows, std::optional<IdIndex> index) {
  if (index) index_ = std::move(*index);
  expected_rows_ = std::max(expected_rows_, rows);
}

void Stripe::clear(std::uint32_t epoch) {
  index_.clear();
  rows_ = 0;
  expected_rows_ = 0;
  live_ = {};
  free_ = {};
  ids_ = Column(8, page_rows_, fresh_);
  for (Column& column : slots_) column = Column(column.shape().row_bytes(), page_rows_, fresh_);
  erasures_ = {};
  forgotten_epoch_ = epoch;
}

void Stripe::add_slot(const SlotInfo& slot, const RowInitializer& initializer, std::uint32_t epoch) {
  Column column(slot.row_bytes, page_rows_, fresh_);
  column.grow_to(rows_, expected_rows_);
  for_each_live([&](std::uint32_t row) { initializer.fill(id_of(row), column.writable_row(row)); });
  index_.for_each([&](IdIndex::Entry& entry) { entry.epoch = epoch; });
  slots_.push_back(std::move(column));
}

void Stripe::find(const StripeBatch& batch, std::uint32_t* rows) const {
  for_each_known(
      batch, nullptr, [](std::size_t) {},
      [&](std::size_t i, const IdIndex::Entry* entry) { rows[i] = entry != nullptr ? entry->row() : kNoRow; });
}

void Stripe::read(const StripeBatch& batch, std::size_t slot, std::uint32_t* rows, std::byte* out) const {
  const Column& column = slots_[slot];
  const std::uint64_t bytes = column.shape().row_bytes();
  const auto prefetch_place = [&](std::size_t i) { prefetch_row<1>(out + batch.positions[i] * bytes, bytes); };
  for_each_known(batch, &column, prefetch_place, [&](std::size_t i, const IdIndex::Entry* entry) {
    std::byte* to = out + batch.positions[i] * bytes;
    if (entry != nullptr) {
      copy_row(to, column.row(entry->row()), bytes);
    } else {
      std::memset(to, 0, bytes);
    }
    if (rows != nullptr) rows[i] = entry != nullptr ? entry->row() : kNoRow;
  });
}

void Stripe::upsert(const StripeBatch& batch, std::span<const SlotValues> values, const Initializers& initializers,
                    std::uint32_t epoch, std::uint32_t* rows) {
  std::array<std::uint64_t, kGroup> homes;
  std::vector<bool> given(slots_.size());
  for (const SlotValues& slot : values) given[slot.slot] = true;
  std::vector<std::size_t> missing;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (!given[slot]) missing.push_back(slot);
  }
  for (std::size_t begin = 0; begin < batch.ids.size(); begin += kGroup) {
    const std::size_t count = std::min(kGroup, batch.ids.size() - begin);
    index_.reserve(index_.size() + count);
    for (std::size_t i = 0; i < count; ++i) {
      homes[i] = index_.home(batch.ids[begin + i]);
      index_.prefetch(homes[i]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t id = batch.ids[begin + i];
      IdIndex::Entry* entry = index_.entry_for(id, homes[i]);
      if (entry->row_plus_one == 0) {
        const std::uint32_t row = new_row();
        store_int64(ids_.writable_row(row), id);
        for (const std::size_t slot : missing) initializers[slot]->fill(id, slots_[slot].writable_row(row));
        live_[row / 64] |= std::uint64_t{1} << (row % 64);
        index_.take(entry, id, row);
        entry->epoch = epoch;
      }
      if (!values.empty()) entry->epoch = epoch;
      rows[begin + i] = entry->row();
      for (const SlotValues& slot : values) {
        const Column& column = slots_[slot.slot];
        const std::uint64_t bytes = column.shape().row_bytes();
        prefetch_row<1>(column.row(entry->row()), bytes);
        prefetch_row<0>(slot.bytes + batch.positions[begin + i] * bytes, bytes);
      }
    }
    for (const SlotValues& slot : values) {
      Column& column = slots_[slot.slot];
      const std::uint64_t bytes = column.shape().row_bytes();
      for (std::size_t i = begin; i < begin + count; ++i) {
        copy_row(column.writable_row(rows[i]), slot.bytes + batch.positions[i] * bytes, bytes);
      }
    }
  }
}

// Does everything that can fail before the row is used: afterwards its pages exist and no snapshot shares them.
std::uint32_t Stripe::new_row() {
  if (!free_.empty()) {
    const std::uint32_t row = free_.back();
    ids_.writable_row(row);
    for (Column& column : slots_) column.writable_row(row);
    free_.pop_back();
    return row;
  }
  if (rows_ == kMaxRows) {
    throw Error(ErrorCode::kLimit, "a stripe of the table is full with " + std::to_string(rows_) +
                                       " rows; spread the table over more shards or stripes");
  }
  const std::uint32_t rows = rows_ + 1;
  if (live_.size() * 64 < rows) live_.push_back(0);
  ids_.grow_to(rows, expected_rows_);
  for (Column& column : slots_) column.grow_to(rows, expected_rows_);
  ids_.writable_row(rows_);
  for (Column& column : slots_) column.writable_row(rows_);
  return rows_++;
}

void Stripe::gather(const StripeBatch& batch, std::size_t slot, const std::uint32_t* rows, std::byte* out) const {
  const Column& column = slots_[slot];
  const std::uint64_t bytes = column.shape().row_bytes();
  const std::size_t count = batch.ids.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kGroup / 4 < count) prefetch_row<0>(column.row(rows[i + kGroup / 4]), bytes);
    copy_row(out + batch.positions[i] * bytes, column.row(rows[i]), bytes);
  }
}

std::size_t Stripe::write(const StripeBatch& batch, const SlotValues& values, std::uint32_t epoch) {
  Column& column = slots_[values.slot];
  const std::uint64_t bytes = column.shape().row_bytes();
  std::size_t known = 0;
  const auto prefetch_value = [&](std::size_t i) { prefetch_row<0>(values.bytes + batch.positions[i] * bytes, bytes); };
  for_each_known(batch, &column, prefetch_value, [&](std::size_t i, IdIndex::Entry* entry) {
    if (entry == nullptr) return;
    entry->epoch = epoch;
    copy_row(column.writable_row(entry->row()), values.bytes + batch.positions[i] * bytes, bytes);
    ++known;
  });
  return known;
}

void Stripe::read_rows(const StripeBatch& numbers, unsigned bits, std::size_t slot, std::byte* out) const {
  const Column& column = slots_[slot];
  const std::uint64_t bytes = column.shape().row_bytes();
  const auto row_at = [&](std::size_t i) { return static_cast<std::uint64_t>(numbers.ids[i]) >> bits; };
  for (std::size_t i = 0; i < numbers.ids.size(); ++i) {
    const std::size_t ahead = i + kGroup / 4;
    if (ahead < numbers.ids.size() && is_live(row_at(ahead))) {
      prefetch_row<0>(column.row(static_cast<std::uint32_t>(row_at(ahead))), bytes);
    }
    std::byte* to = out + numbers.positions[i] * bytes;
    if (is_live(row_at(i))) {
      copy_row(to, column.row(static_cast<std::uint32_t>(row_at(i))), bytes);
    } else {
      std::memset(to, 0, bytes);
    }
  }
}

std::size_t Stripe::write_rows(const StripeBatch& numbers, unsigned bits, const SlotValues& values,
                               std::uint32_t epoch) {
  // By id, because the index entries record the change.
  std::vector<std::int64_t> ids;
  std::vector<std::uint32_t> positions;
  for (std::size_t i = 0; i < numbers.ids.size(); ++i) {
    const std::uint64_t row = static_cast<std::uint64_t>(numbers.ids[i]) >> bits;
    if (!is_live(row)) continue;
    ids.push_back(id_of(static_cast<std::uint32_t>(row)));
    positions.push_back(numbers.positions[i]);
  }
  return write({ids, positions}, values, epoch);
}

std::size_t Stripe::touch(const StripeBatch& batch, std::size_t version, std::size_t freq, std::int64_t step,
                          std::uint32_t epoch) {
  std::size_t known = 0;
  for_each_known(
      batch, &slots_[version], [](std::size_t) {},
      [&](std::size_t, IdIndex::Entry* entry) {
        if (entry == nullptr) return;
        entry->epoch = epoch;
        store_int64(slots_[version].writable_row(entry->row()), step);
        std::byte* count = slots_[freq].writable_row(entry->row());
        // The count may come from a checkpoint, and be the largest number.
        const std::int64_t before = load_int64(count);
        store_int64(count, before + (before < std::numeric_limits<std::int64_t>::max() ? 1 : 0));
        ++known;
      });
  return known;
}

std::size_t Stripe::erase(const StripeBatch& batch, std::uint32_t epoch) {
  std::size_t known = 0;
  for (const std::int64_t id : batch.ids) {
    IdIndex::Entry* entry = index_.find(id);
    if (entry == nullptr) continue;
    erase_entry(entry, epoch);
    ++known;
  }
  return known;
}

std::uint64_t Stripe::erase_below(std::size_t slot, std::int64_t limit, std::uint32_t epoch) {
  std::uint64_t erased = 0;
  for_each_live([&](std::uint32_t row) {
    if (load_int64(slots_[slot].row(row)) >= limit) return;
    erase_entry(index_.find(id_of(row)), epoch);
    ++erased;
  });
  return erased;
}

void Stripe::erase_entry(IdIndex::Entry* entry, std::uint32_t epoch) {
  const std::uint32_t row = entry->row();
  log_erasure(entry->id, epoch);
  free_.push_back(row);
  live_[row / 64] &= ~(std::uint64_t{1} << (row % 64));
  index_.erase(entry);
}

void Stripe::log_erasure(std::int64_t id, std::uint32_t epoch) {
  if (erasures_.size() >= std::max<std::size_t>(kLeastErasures, rows_)) {
    const auto kept = erasures_.begin() + static_cast<std::ptrdiff_t>(erasures_.size() / 2);
    forgotten_epoch_ = (kept - 1)->epoch;
    erasures_.erase(erasures_.begin(), kept);
  }
  erasures_.push_back({id, epoch});
}

void Stripe::append_ids(std::vector<std::int64_t>& ids) const {
  for_each_live([&](std::uint32_t row) { ids.push_back(id_of(row)); });
}

bool Stripe::append_changes(std::uint32_t epoch, HashTable::Changes& changes) const {
  if (epoch <= forgotten_epoch_ && forgotten_epoch_ != 0) return false;
  std::vector<std::uint32_t> rows;
  index_.for_each([&](const IdIndex::Entry& entry) {
    if (entry.epoch >= epoch) rows.push_back(entry.row());
  });
  std::sort(rows.begin(), rows.end());
  for (const std::uint32_t row : rows) changes.changed.push_back(id_of(row));
  const std::size_t first = changes.erased.size();
  for (const Erasure& erasure : erasures_) {
    if (erasure.epoch >= epoch && index_.find(erasure.id) == nullptr) changes.erased.push_back(erasure.id);
  }
  const auto begin = changes.erased.begin() + static_cast<std::ptrdiff_t>(first);
  std::sort(begin, changes.erased.end());
  changes.erased.erase(std::unique(begin, changes.erased.end()), changes.erased.end());
  return true;
}

PinnedStripe Stripe::pin() const {
  PinnedStripe pinned{index_.size(), rows_, {}, {ids_.shape(), ids_.pages()}, {}};
  if (!free_.empty()) pinned.live = live_;
  pinned.slots.reserve(slots_.size());
  for (const Column& column : slots_) pinned.slots.push_back({column.shape(), column.pages()});
  return pinned;
}

}  // namespace weightstore::table
