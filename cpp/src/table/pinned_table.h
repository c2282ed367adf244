#pragma once

// The implementation of TableSnapshot: the pinned pages of a table, and which rows belong to which child.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "table/batch_plan.h"
#include "table/stripe.h"
#include "weightstore/table_snapshot.h"

namespace weightstore::table {

// Rows [begin, begin + count) of a stripe.
struct RowRun {
  std::uint32_t begin;
  std::uint32_t count;
};

class PinnedTable final : public TableSnapshot {
 public:
  struct State {
    std::string name;
    StripeMap map;
    bool coalesced;
    std::vector<std::string> children;
    std::vector<SlotInfo> slots;
    std::uint64_t epoch;
    std::vector<PinnedStripe> stripes;
  };

  explicit PinnedTable(State state);

  const std::string& name() const override { return state_.name; }
  const BucketRange& buckets() const override { return state_.map.buckets(); }
  bool coalesced() const override { return state_.coalesced; }
  const std::vector<std::string>& children() const override { return state_.children; }
  const std::vector<SlotInfo>& slots() const override { return state_.slots; }
  std::uint64_t epoch() const override { return state_.epoch; }
  std::uint64_t size() const override { return size_; }
  std::size_t stripe_count() const override { return state_.stripes.size(); }
  BucketRange buckets_of(StripeRange stripes) const override;
  std::uint64_t rows(std::size_t child, StripeRange stripes) const override;
  std::shared_ptr<ByteProducer> ids(std::size_t child, StripeRange stripes) const override;
  std::shared_ptr<ByteProducer> slot(std::size_t slot, std::size_t child, StripeRange stripes) const override;

  const PinnedStripe& stripe(std::size_t stripe) const { return state_.stripes[stripe]; }
  // The live rows of a child in a stripe, in ascending order.
  std::span<const RowRun> runs(std::size_t stripe, std::size_t child) const;

 private:
  // The runs of all children of a stripe, one child after the other. Computed when they are first needed.
  struct StripeRuns {
    std::once_flag found;
    std::vector<RowRun> runs;
    std::vector<std::size_t> begins;  // where each child begins in `runs`, and the end
    std::vector<std::uint32_t> rows;  // the number of rows of each child
  };

  void check(std::size_t child, StripeRange stripes) const;
  const StripeRuns& runs_of(std::size_t stripe) const;
  void find_runs(const PinnedStripe& stripe, StripeRuns& found) const;

  const State state_;
  std::uint64_t size_ = 0;
  std::unique_ptr<StripeRuns[]> runs_;
};

}  // namespace weightstore::table
