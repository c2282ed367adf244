#pragma once

// What a hash table is made of, and how a batch goes through it.

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
#include "table/gate.h"
#include "table/initializer.h"
#include "table/stripe.h"
#include "weightstore/error.h"
#include "weightstore/hash_table.h"

// Two levels of locks. Batches pass the gate together; whoever needs the table at one instant or changes its columns
// (snapshot, add_slot, clear) passes alone and then needs no other lock. Behind the gate, a batch takes the lock of one
// stripe at a time.

namespace weightstore {
namespace table {

inline Error invalid(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

// Throws for memory that is not there.
inline void check_not_null(const char* what, const void* data, std::size_t size) {
  if (data == nullptr && size > 0) {
    throw invalid(std::string(what) + " have " + std::to_string(size) + " bytes or elements at a null pointer");
  }
}

// A slot that makes sense; throws otherwise.
SlotInfo make_slot(std::string name, Shape shape, DType dtype);

}  // namespace table

// Everything but the constructor is for those behind the gate.
struct HashTable::Impl {
  explicit Impl(TableOptions&& given);

  std::optional<std::size_t> find_slot(std::string_view name) const;
  const SlotInfo& slot_at(std::size_t slot) const;  // throws
  // A slot that touch() uses; throws when it is something else.
  std::optional<std::size_t> usage_slot(std::string_view name) const;
  std::size_t add_slot(SlotInfo slot, const Initializer& initializer);

  // Throws unless the table can hold all of them.
  void require_all(std::span<const std::int64_t> ids) const;

  bool is_stripe(std::size_t stripe) const { return stripe < map.count(); }

  std::int64_t row_number(std::uint32_t row, std::size_t stripe) const {
    return row == table::kNoRow ? -1 : static_cast<std::int64_t>((std::uint64_t{row} << map.bits()) | stripe);
  }

  // The stripe of a row number, or a number that is no stripe's.
  std::size_t stripe_of_row(std::int64_t number) const {
    return number < 0 ? map.count() : static_cast<std::uint64_t>(number) & (map.count() - 1);
  }

  std::uint64_t erase_below(std::size_t slot, std::int64_t limit);

  static constexpr std::size_t kParallelIds = 16384;  // below, starting threads costs more than it gains

  // Calls work(stripe number, part, first id of the batch that positions count from) for all parts of a batch, on
  // several threads when there are many and the caller may. Ids that the table cannot hold come last, under a number
  // that is no stripe's.
  template <class Work>
  void for_parts(std::span<const std::int64_t> ids, bool parallel, Work work) const {
    for_parts(ids, parallel, [this](std::int64_t id) { return map.stripe_of(id); }, work);
  }
  // The same for a batch of row numbers.
  template <class Work>
  void for_row_parts(std::span<const std::int64_t> rows, Work work) const {
    for_parts(rows, true, [this](std::int64_t number) { return stripe_of_row(number); }, work);
  }

  template <class StripeOf, class Work>
  void for_parts(std::span<const std::int64_t> ids, bool parallel, StripeOf stripe_of, Work work) const {
    for (std::size_t first = 0; first < ids.size(); first += table::BatchPlan::kMaxIds) {
      const table::BatchPlan plan(ids.subspan(first, std::min(table::BatchPlan::kMaxIds, ids.size() - first)),
                                  map.count(), stripe_of);
      for_stripes(parallel && plan.size() >= kParallelIds, [&](std::size_t stripe) {
        const table::BatchPart part = plan.part(stripe);
        if (!part.ids.empty()) work(stripe, part, first);
      });
      if (!plan.strangers().ids.empty()) work(map.count(), plan.strangers(), first);
    }
  }

  // The same for work that only reads, where nothing hangs on the order of ids: each thread sorts and works on a piece
  // of the batch.
  template <class Work>
  void for_parts_to_read(std::span<const std::int64_t> ids, Work work) const {
    const std::size_t pieces = std::clamp<std::size_t>(ids.size() / (kParallelIds / 2), 1, threads);
    const auto begin_of = [&](std::size_t piece) { return ids.size() * piece / pieces; };
    io::run_parallel(static_cast<unsigned>(pieces), [&](unsigned piece, const io::StopFlag&) {
      const std::size_t begin = begin_of(piece);
      for_parts(ids.subspan(begin, begin_of(piece + 1) - begin), false,
                [&](std::size_t stripe, const table::BatchPart& part, std::size_t first) {
                  work(stripe, part, begin + first);
                });
    });
  }

  template <class Work>
  void for_stripes(bool parallel, Work work) const {
    if (!parallel || threads == 1 || stripes.size() == 1) {
      for (std::size_t i = 0; i < stripes.size(); ++i) work(i);
      return;
    }
    std::atomic<std::size_t> next{0};
    io::run_parallel(std::min<unsigned>(threads, static_cast<unsigned>(stripes.size())),
                     [&](unsigned, const io::StopFlag& stop) {
                       while (!stop.is_set()) {
                         const std::size_t stripe = next.fetch_add(1, std::memory_order_relaxed);
                         if (stripe >= stripes.size()) return;
                         work(stripe);
                       }
                     });
  }

  TableOptions options;
  const table::StripeMap map;
  const bool coalesced;
  unsigned threads = 1;
  mutable table::Gate gate;
  std::uint32_t epoch = 1;
  std::vector<SlotInfo> slots;
  table::Stripe::Initializers initializers;
  io::FreshPages fresh;  // before the stripes that use it
  std::vector<std::unique_ptr<table::Stripe>> stripes;
};

}  // namespace weightstore
