#pragma once

// The state of a hash table, and how a batch goes through its stripes.

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/huge_buffer.h"
#include "io/parallel.h"
#include "table/batch_plan.h"
#include "table/fork_safe_lock.h"
#include "table/initializer.h"
#include "table/stripe.h"
#include "weightstore/error.h"
#include "weightstore/hash_table.h"

// There are two levels of locks. Batches share the lock of the table. A call that needs the whole table at one instant,
// or changes its slots (snapshot, add_slot, clear), holds it exclusively and needs no other lock. A batch also locks
// one stripe at a time.

namespace weightstore {
namespace table {

inline Error invalid(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

// Throws Error(kInvalidArgument) for a null pointer with a size.
inline void check_not_null(const char* what, const void* data, std::size_t size) {
  if (data == nullptr && size > 0) {
    throw invalid(std::string(what) + " have " + std::to_string(size) + " bytes or elements at a null pointer");
  }
}

// Throws Error(kInvalidArgument) for a name, shape or type that a slot cannot have.
SlotInfo make_slot(std::string name, Shape shape, DType dtype);

}  // namespace table

// All functions except the constructor are called with the lock held.
struct HashTable::Impl {
  explicit Impl(TableOptions&& given);

  std::optional<std::size_t> find_slot(std::string_view name) const;
  const SlotInfo& slot_at(std::size_t slot) const;  // throws
  // A slot that touch() uses, if it exists. Throws Error(kInvalidArgument) when it has another type.
  std::optional<std::size_t> usage_slot(std::string_view name) const;
  std::size_t add_slot(SlotInfo slot, const Initializer& initializer);

  // Throws Error(kInvalidArgument) for an id that the table cannot hold.
  void require_all(std::span<const std::int64_t> ids) const;

  bool is_stripe(std::size_t stripe) const { return stripe < map.count(); }

  std::int64_t row_number(std::uint32_t row, std::size_t stripe) const {
    return row == table::kNoRow ? -1 : static_cast<std::int64_t>((std::uint64_t{row} << map.bits()) | stripe);
  }

  // The stripe of a row number; map.count() for a negative number.
  std::size_t stripe_of_row(std::int64_t number) const {
    return number < 0 ? map.count() : static_cast<std::uint64_t>(number) & (map.count() - 1);
  }

  std::uint64_t erase_below(std::size_t slot, std::int64_t limit);

  static constexpr std::size_t kParallelIds = 16384;  // for fewer ids, starting threads costs more than it gains

  // Calls work(stripe, batch, first) for every stripe with ids of the batch, on several threads if `parallel` is true
  // and the batch is large. Positions count from `first`. Ids that the table cannot hold come last, with the stripe
  // map.count().
  template <class Work>
  void for_each_batch(std::span<const std::int64_t> ids, bool parallel, Work work) const {
    for_each_batch(ids, parallel, [this](std::int64_t id) { return map.stripe_of(id); }, work);
  }
  // As above, for a batch of row numbers.
  template <class Work>
  void for_each_row_batch(std::span<const std::int64_t> rows, Work work) const {
    for_each_batch(rows, true, [this](std::int64_t number) { return stripe_of_row(number); }, work);
  }

  template <class StripeOf, class Work>
  void for_each_batch(std::span<const std::int64_t> ids, bool parallel, StripeOf stripe_of, Work work) const {
    for (std::size_t first = 0; first < ids.size(); first += table::BatchPlan::kMaxIds) {
      const table::BatchPlan plan(ids.subspan(first, std::min(table::BatchPlan::kMaxIds, ids.size() - first)),
                                  map.count(), stripe_of);
      for_stripes(parallel && plan.size() >= kParallelIds, [&](std::size_t stripe) {
        const table::StripeBatch batch = plan.batch(stripe);
        if (!batch.ids.empty()) work(stripe, batch, first);
      });
      if (!plan.outside().ids.empty()) work(map.count(), plan.outside(), first);
    }
  }

  // As above, for work that only reads and does not depend on the order of ids: each thread sorts and processes a piece
  // of the batch. A small batch is one piece, for which no thread is started.
  template <class Work>
  void for_each_batch_to_read(std::span<const std::int64_t> ids, Work work) const {
    const std::size_t pieces = std::clamp<std::size_t>(ids.size() / (kParallelIds / 2), 1, threads);
    const auto begin_of = [&](std::size_t piece) { return ids.size() * piece / pieces; };
    io::parallel_for(pieces, static_cast<unsigned>(pieces), [&](std::size_t piece) {
      const std::size_t begin = begin_of(piece);
      for_each_batch(ids.subspan(begin, begin_of(piece + 1) - begin), false,
                     [&](std::size_t stripe, const table::StripeBatch& batch, std::size_t first) {
                       work(stripe, batch, begin + first);
                     });
    });
  }

  template <class Work>
  void for_stripes(bool parallel, Work work) const {
    io::parallel_for(stripes.size(), parallel ? threads : 1, work);
  }

  TableOptions options;
  const table::StripeMap map;
  const bool coalesced;
  unsigned threads = 1;
  mutable table::ForkSafeLock table_lock;
  std::uint32_t epoch = 1;
  std::vector<SlotInfo> slots;
  table::Stripe::Initializers initializers;
  io::FreshPages fresh;  // before the stripes that use it
  std::vector<std::unique_ptr<table::Stripe>> stripes;
};

}  // namespace weightstore
