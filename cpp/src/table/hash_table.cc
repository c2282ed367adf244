#include "weightstore/hash_table.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>

#include "table/pinned_table.h"
#include "table/stripe.h"
#include "table/table_state.h"
#include "weightstore/error.h"

namespace weightstore {

using table::check_not_null;
using table::IdIndex;
using table::invalid;
using table::kNoRow;
using table::make_slot;
using table::PinnedTable;
using table::RowInitializer;
using table::SlotValues;
using table::Stripe;
using table::StripeBatch;

namespace {

// The slots that touch() writes.
constexpr std::string_view kVersion = "version";
constexpr std::string_view kFreq = "freq";

// Throws unless `found` has `expected` elements and is not null.
template <class T>
void check_buffer(const char* what, std::span<T> found, std::uint64_t expected) {
  if (found.size() != expected) {
    throw invalid(std::string(what) + " have " + std::to_string(found.size()) +
                  " bytes or elements where the ids ask for " + std::to_string(expected));
  }
  check_not_null(what, found.data(), found.size());
}

// As above, for a batch of ids or row numbers, which may have any size.
void check_batch(std::span<const std::int64_t> ids) { check_not_null("ids", ids.data(), ids.size()); }

// Unknown ids read as zeros.
void clear_places(const StripeBatch& batch, std::byte* out, std::uint64_t row_bytes) {
  for (const std::uint32_t position : batch.positions) std::memset(out + position * row_bytes, 0, row_bytes);
}

}  // namespace

HashTable::HashTable(TableOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  impl_->add_slot(make_slot("embedding", impl_->options.shape, impl_->options.dtype), impl_->options.initializer);
}

HashTable::~HashTable() = default;

const std::string& HashTable::name() const { return impl_->options.name; }
const BucketRange& HashTable::buckets() const { return impl_->options.buckets; }
bool HashTable::coalesced() const { return impl_->coalesced; }
const std::vector<std::string>& HashTable::children() const { return impl_->options.children; }
std::size_t HashTable::stripe_count() const { return impl_->map.count(); }

std::vector<SlotInfo> HashTable::slots() const {
  const auto lock = impl_->table_lock.shared();
  return impl_->slots;
}

std::optional<std::size_t> HashTable::find_slot(std::string_view slot) const {
  const auto lock = impl_->table_lock.shared();
  return impl_->find_slot(slot);
}

std::size_t HashTable::slot_index(std::string_view slot) const {
  const auto lock = impl_->table_lock.shared();
  if (const auto found = impl_->find_slot(slot)) return *found;
  std::string names;
  for (const SlotInfo& info : impl_->slots) names += (names.empty() ? "" : ", ") + printable(info.name);
  throw Error(ErrorCode::kNotFound,
              "table '" + printable(name()) + "' has no slot '" + printable(slot) + "'; it has " + names);
}

std::size_t HashTable::add_slot(std::string name, Shape shape, DType dtype, const Initializer& initializer) {
  SlotInfo slot = make_slot(std::move(name), std::move(shape), dtype);
  const auto lock = impl_->table_lock.exclusive();
  return impl_->add_slot(std::move(slot), initializer);
}

void HashTable::set_initializer(std::size_t slot, const Initializer& initializer) {
  const auto lock = impl_->table_lock.exclusive();
  impl_->initializers[slot] = std::make_shared<const RowInitializer>(impl_->slot_at(slot), initializer);
}

void HashTable::lookup(std::span<const std::int64_t> ids, bool insert, std::optional<std::span<std::int64_t>> rows,
                       std::optional<MutableBytes> embeddings) {
  check_batch(ids);
  const auto lock = impl_->table_lock.shared();
  const std::uint64_t bytes = impl_->slots[0].row_bytes;
  if (rows) check_buffer("rows", *rows, ids.size());
  if (embeddings) check_buffer("embeddings", *embeddings, ids.size() * bytes);
  if (insert) impl_->require_all(ids);
  const auto work = [&](std::size_t i, const StripeBatch& batch, std::size_t first) {
    std::byte* out = embeddings ? embeddings->data() + first * bytes : nullptr;
    std::vector<std::uint32_t> found(batch.ids.size(), kNoRow);
    if (!impl_->is_stripe(i)) {
      if (out != nullptr) clear_places(batch, out, bytes);
    } else if (insert) {
      Stripe& stripe = *impl_->stripes[i];
      const std::unique_lock stripe_lock(stripe.mutex());
      stripe.upsert(batch, {}, impl_->initializers, impl_->epoch, found.data());
      if (out != nullptr) stripe.gather(batch, 0, found.data(), out);
    } else {
      const Stripe& stripe = *impl_->stripes[i];
      const std::shared_lock stripe_lock(stripe.mutex());
      if (out != nullptr) {
        stripe.read(batch, 0, found.data(), out);
      } else {
        stripe.find(batch, found.data());
      }
    }
    if (!rows) return;
    for (std::size_t k = 0; k < found.size(); ++k) {
      (*rows)[first + batch.positions[k]] = impl_->row_number(found[k], i);
    }
  };
  if (insert) {
    impl_->for_each_batch(ids, true, work);
  } else {
    impl_->for_each_batch_to_read(ids, work);
  }
}

void HashTable::insert(std::span<const std::int64_t> ids, ConstBytes embeddings) {
  check_batch(ids);
  const auto lock = impl_->table_lock.shared();
  const std::uint64_t bytes = impl_->slots[0].row_bytes;
  check_buffer("embeddings", embeddings, ids.size() * bytes);
  impl_->require_all(ids);
  impl_->for_each_batch(ids, true, [&](std::size_t i, const StripeBatch& batch, std::size_t first) {
    std::vector<std::uint32_t> rows(batch.ids.size());
    const SlotValues values{0, embeddings.data() + first * bytes};
    Stripe& stripe = *impl_->stripes[i];
    const std::unique_lock stripe_lock(stripe.mutex());
    stripe.upsert(batch, {&values, 1}, impl_->initializers, impl_->epoch, rows.data());
  });
}

std::size_t HashTable::erase(std::span<const std::int64_t> ids) {
  check_batch(ids);
  const auto lock = impl_->table_lock.shared();
  std::atomic<std::size_t> erased{0};
  impl_->for_each_batch(ids, true, [&](std::size_t i, const StripeBatch& batch, std::size_t) {
    if (!impl_->is_stripe(i)) return;
    const std::unique_lock stripe_lock(impl_->stripes[i]->mutex());
    erased += impl_->stripes[i]->erase(batch, impl_->epoch);
  });
  return erased;
}

void HashTable::contains(std::span<const std::int64_t> ids, std::span<std::uint8_t> found) const {
  check_batch(ids);
  const auto lock = impl_->table_lock.shared();
  check_buffer("answers", found, ids.size());
  impl_->for_each_batch_to_read(ids, [&](std::size_t i, const StripeBatch& batch, std::size_t first) {
    std::vector<std::uint32_t> rows(batch.ids.size(), kNoRow);
    if (impl_->is_stripe(i)) {
      const std::shared_lock stripe_lock(impl_->stripes[i]->mutex());
      impl_->stripes[i]->find(batch, rows.data());
    }
    for (std::size_t k = 0; k < rows.size(); ++k) found[first + batch.positions[k]] = rows[k] != kNoRow ? 1 : 0;
  });
}

void HashTable::read_slot(std::size_t slot, std::span<const std::int64_t> ids, MutableBytes values) const {
  check_batch(ids);
  const auto lock = impl_->table_lock.shared();
  const std::uint64_t bytes = impl_->slot_at(slot).row_bytes;
  check_buffer("values", values, ids.size() * bytes);
  impl_->for_each_batch_to_read(ids, [&](std::size_t i, const StripeBatch& batch, std::size_t first) {
    std::byte* out = values.data() + first * bytes;
    if (!impl_->is_stripe(i)) {
      return clear_places(batch, out, bytes);
    }
    const std::shared_lock stripe_lock(impl_->stripes[i]->mutex());
    impl_->stripes[i]->read(batch, slot, nullptr, out);
  });
}

std::size_t HashTable::write_slot(std::size_t slot, std::span<const std::int64_t> ids, ConstBytes values) {
  check_batch(ids);
  const auto lock = impl_->table_lock.shared();
  const std::uint64_t bytes = impl_->slot_at(slot).row_bytes;
  check_buffer("values", values, ids.size() * bytes);
  std::atomic<std::size_t> known{0};
  impl_->for_each_batch(ids, true, [&](std::size_t i, const StripeBatch& batch, std::size_t first) {
    if (!impl_->is_stripe(i)) return;
    const std::unique_lock stripe_lock(impl_->stripes[i]->mutex());
    known += impl_->stripes[i]->write(batch, {slot, values.data() + first * bytes}, impl_->epoch);
  });
  return known;
}

void HashTable::read_slot_rows(std::size_t slot, std::span<const std::int64_t> rows, MutableBytes values) const {
  check_batch(rows);
  const auto lock = impl_->table_lock.shared();
  const std::uint64_t bytes = impl_->slot_at(slot).row_bytes;
  check_buffer("values", values, rows.size() * bytes);
  impl_->for_each_row_batch(rows, [&](std::size_t i, const StripeBatch& batch, std::size_t first) {
    std::byte* out = values.data() + first * bytes;
    if (!impl_->is_stripe(i)) {
      return clear_places(batch, out, bytes);
    }
    const std::shared_lock stripe_lock(impl_->stripes[i]->mutex());
    impl_->stripes[i]->read_rows(batch, impl_->map.bits(), slot, out);
  });
}

std::size_t HashTable::write_slot_rows(std::size_t slot, std::span<const std::int64_t> rows, ConstBytes values) {
  check_batch(rows);
  const auto lock = impl_->table_lock.shared();
  const std::uint64_t bytes = impl_->slot_at(slot).row_bytes;
  check_buffer("values", values, rows.size() * bytes);
  std::atomic<std::size_t> known{0};
  impl_->for_each_row_batch(rows, [&](std::size_t i, const StripeBatch& batch, std::size_t first) {
    if (!impl_->is_stripe(i)) return;
    const std::unique_lock stripe_lock(impl_->stripes[i]->mutex());
    known +=
        impl_->stripes[i]->write_rows(batch, impl_->map.bits(), {slot, values.data() + first * bytes}, impl_->epoch);
  });
  return known;
}

std::size_t HashTable::load_rows(std::size_t child, std::span<const std::int64_t> ids,
                                 std::span<const SlotBytes> slots) {
  check_batch(ids);
  const auto lock = impl_->table_lock.shared();
  if (child >= impl_->options.children.size()) {
    throw invalid("child " + std::to_string(child) + " of a table of " +
                  std::to_string(impl_->options.children.size()));
  }
  for (const SlotBytes& slot : slots) {
    check_buffer("rows", slot.bytes, ids.size() * impl_->slot_at(slot.slot).row_bytes);
  }
  std::vector<std::int64_t> encoded;
  if (impl_->coalesced) {
    encoded.reserve(ids.size());
    for (const std::int64_t id : ids) {
      if (child_of(id) != 0) {
        throw invalid("id " + std::to_string(id) + " of child '" + printable(impl_->options.children[child]) +
                      "': a coalesced table holds ids of 52 bits, 0 to " + std::to_string(kChildIdMask));
      }
      encoded.push_back(coalesced_id(child, id));
    }
    ids = encoded;
  }
  std::size_t taken = 0;
  impl_->for_each_batch(ids, false, [&](std::size_t i, const StripeBatch& batch, std::size_t first) {
    if (!impl_->is_stripe(i)) return;
    std::vector<std::uint32_t> rows(batch.ids.size());
    std::vector<SlotValues> values;
    for (const SlotBytes& slot : slots) {
      values.push_back({slot.slot, slot.bytes.data() + first * impl_->slots[slot.slot].row_bytes});
    }
    Stripe& stripe = *impl_->stripes[i];
    const std::unique_lock stripe_lock(stripe.mutex());
    stripe.upsert(batch, values, impl_->initializers, impl_->epoch, rows.data());
    taken += batch.ids.size();
  });
  return taken;
}

std::vector<std::int64_t> HashTable::ids() const {
  const auto lock = impl_->table_lock.shared();
  std::vector<std::int64_t> ids;
  for (const auto& stripe : impl_->stripes) {
    const std::shared_lock stripe_lock(stripe->mutex());
    stripe->append_ids(ids);
  }
  return ids;
}

std::uint64_t HashTable::size() const {
  const auto lock = impl_->table_lock.shared();
  std::uint64_t size = 0;
  for (const auto& stripe : impl_->stripes) {
    const std::shared_lock stripe_lock(stripe->mutex());
    size += stripe->size();
  }
  return size;
}

void HashTable::clear() {
  const auto lock = impl_->table_lock.exclusive();
  for (const auto& stripe : impl_->stripes) stripe->clear(impl_->epoch);
}

void HashTable::reserve(std::uint64_t rows) {
  const auto lock = impl_->table_lock.exclusive();
  const std::uint64_t share = rows / impl_->stripes.size();
  constexpr std::uint64_t kMaxShare = std::uint64_t{1} << 31;
  if (share > kMaxShare) {
    throw Error(ErrorCode::kLimit, "cannot reserve " + std::to_string(rows) + " rows; a table of " +
                                       std::to_string(impl_->stripes.size()) + " stripes holds " +
                                       std::to_string(kMaxShare * impl_->stripes.size()));
  }
  // Buckets do not have exactly the same number of ids, but with many ids they differ by less than this.
  const std::uint64_t most = share + share / 16 + 16;
  std::vector<std::optional<IdIndex>> indexes;
  try {
    for (const auto& stripe : impl_->stripes) indexes.push_back(stripe->index_for(most));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kLimit,
                "cannot reserve " + std::to_string(rows) + " rows: there is no memory for an index of so many");
  }
  for (std::size_t i = 0; i < indexes.size(); ++i) impl_->stripes[i]->reserve(most, std::move(indexes[i]));
}

std::size_t HashTable::touch(std::span<const std::int64_t> ids, std::int64_t step) {
  check_batch(ids);
  if (!find_slot(kVersion) || !find_slot(kFreq)) {
    const auto lock = impl_->table_lock.exclusive();
    impl_->usage_slot(kFreq);  // throws, if at all, before a slot is added
    for (const std::string_view name : {kVersion, kFreq}) {
      if (!impl_->usage_slot(name)) impl_->add_slot(make_slot(std::string(name), {}, DType::kI64), {});
    }
  }
  const auto lock = impl_->table_lock.shared();
  const std::size_t version = *impl_->usage_slot(kVersion);
  const std::size_t freq = *impl_->usage_slot(kFreq);
  std::atomic<std::size_t> known{0};
  impl_->for_each_batch(ids, true, [&](std::size_t i, const StripeBatch& batch, std::size_t) {
    if (!impl_->is_stripe(i)) return;
    const std::unique_lock stripe_lock(impl_->stripes[i]->mutex());
    known += impl_->stripes[i]->touch(batch, version, freq, step, impl_->epoch);
  });
  return known;
}

std::uint64_t HashTable::evict_older(std::int64_t step) {
  const auto lock = impl_->table_lock.shared();
  const auto version = impl_->usage_slot(kVersion);
  return version ? impl_->erase_below(*version, step) : 0;
}

std::uint64_t HashTable::evict_rarer(std::int64_t count) {
  const auto lock = impl_->table_lock.shared();
  const auto freq = impl_->usage_slot(kFreq);
  return freq ? impl_->erase_below(*freq, count) : 0;
}

std::uint64_t HashTable::epoch() const {
  const auto lock = impl_->table_lock.shared();
  return impl_->epoch;
}

HashTable::Changes HashTable::changed_since(std::uint64_t epoch) const {
  const auto lock = impl_->table_lock.exclusive();
  if (epoch > impl_->epoch) {
    throw invalid("epoch " + std::to_string(epoch) + " has not begun; the table is in epoch " +
                  std::to_string(impl_->epoch));
  }
  Changes changes;
  for (const auto& stripe : impl_->stripes) {
    if (stripe->append_changes(static_cast<std::uint32_t>(epoch), changes)) continue;
    throw invalid("erasures since epoch " + std::to_string(epoch) + " are forgotten; save the whole table");
  }
  return changes;
}

std::shared_ptr<const TableSnapshot> HashTable::snapshot() {
  const auto lock = impl_->table_lock.exclusive();
  if (impl_->epoch == std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::kLimit, "the table has been through all its epochs; make a new one");
  }
  PinnedTable::State state{impl_->options.name, impl_->map, impl_->coalesced, impl_->options.children, impl_->slots,
                           impl_->epoch + 1,    {}};
  state.stripes.reserve(impl_->stripes.size());
  for (const auto& stripe : impl_->stripes) state.stripes.push_back(stripe->pin());
  auto snapshot = std::make_shared<const PinnedTable>(std::move(state));
  ++impl_->epoch;
  return snapshot;
}

}  // namespace weightstore
