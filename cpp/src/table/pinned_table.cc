#include "table/pinned_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "io/copy_bytes.h"
#include "weightstore/error.h"

namespace weightstore::table {
namespace {

// Calls visit(row) for every live row, in ascending order.
template <class Visit>
void for_each_live(const PinnedStripe& stripe, Visit visit) {
  if (stripe.live.empty()) {
    for (std::uint32_t row = 0; row < stripe.rows; ++row) visit(row);
    return;
  }
  for (std::size_t i = 0; i < stripe.live.size(); ++i) {
    for (std::uint64_t bits = stripe.live[i]; bits != 0; bits &= bits - 1) {
      visit(static_cast<std::uint32_t>(i * 64 + static_cast<std::size_t>(std::countr_zero(bits))));
    }
  }
}

const std::byte* row_address(const PinnedColumn& column, std::uint32_t row) {
  return column.pages[column.shape.page_of(row)].data() + column.shape.row_in_page(row) * column.shape.row_bytes();
}

std::size_t child_of_row(const PinnedStripe& stripe, std::uint32_t row) {
  std::int64_t id;
  std::memcpy(&id, row_address(stripe.ids, row), sizeof id);
  return child_of(id);
}

// Streams one column of some stripes. Copies adjacent rows of a page together, and skips rows that are not live.
class ColumnBytes : public ByteProducer {
 public:
  static constexpr std::size_t kIds = ~std::size_t{0};

  ColumnBytes(std::shared_ptr<const PinnedTable> table, std::size_t slot, std::size_t child, StripeRange stripes)
      : table_(std::move(table)),
        slot_(slot),
        child_(child),
        stripes_(stripes),
        size_(table_->rows(child, stripes) * (slot == kIds ? 8 : table_->slots()[slot].row_bytes)) {
    rewind();
  }

  std::uint64_t size() const override { return size_; }

  void fill(std::uint64_t offset, MutableBytes out) override {
    if (offset < position_) rewind();
    while (position_ < offset) take(offset - position_);
    while (!out.empty()) {
      const ConstBytes bytes = take(out.size());
      io::copy_bytes(out.data(), bytes.data(), bytes.size());
      out = out.subspan(bytes.size());
    }
  }

 private:
  const PinnedColumn& column() const {
    const PinnedStripe& stripe = table_->stripe(stripe_);
    return slot_ == kIds ? stripe.ids : stripe.slots[slot_];
  }

  void rewind() {
    position_ = 0;
    stripe_ = stripes_.first;
    run_ = 0;
    in_run_ = 0;
  }

  // The next contiguous bytes, at most `most`.
  ConstBytes take(std::uint64_t most) {
    std::span<const RowRun> runs = table_->runs(stripe_, child_);
    while (run_ == runs.size()) {
      if (++stripe_ == stripes_.last) throw Error(ErrorCode::kInvalidArgument, "read beyond the rows of the snapshot");
      runs = table_->runs(stripe_, child_);
      run_ = 0;
    }
    const PageShape& shape = column().shape;
    const std::uint64_t row_bytes = shape.row_bytes();
    const RowRun run = runs[run_];
    const auto row = static_cast<std::uint32_t>(run.begin + in_run_ / row_bytes);
    const std::uint64_t in_row = in_run_ % row_bytes;
    const std::uint64_t left_in_page = (shape.page_rows() - shape.row_in_page(row)) * row_bytes - in_row;
    const std::uint64_t left_in_run = run.count * row_bytes - in_run_;
    const std::uint64_t count = std::min({most, left_in_page, left_in_run});
    const ConstBytes bytes(row_address(column(), row) + in_row, count);
    position_ += count;
    in_run_ += count;
    if (count == left_in_run) {
      ++run_;
      in_run_ = 0;
    }
    return bytes;
  }

  const std::shared_ptr<const PinnedTable> table_;
  const std::size_t slot_;
  const std::size_t child_;
  const StripeRange stripes_;
  const std::uint64_t size_;
  std::uint64_t position_ = 0;  // the next byte is byte in_run_ of run run_ of stripe stripe_
  std::size_t stripe_ = 0;
  std::size_t run_ = 0;
  std::uint64_t in_run_ = 0;
};

// The ids of a child of a coalesced table, with the 12 bits of the child cleared: all of byte 7 and the upper half of
// byte 6.
class ChildIds final : public ColumnBytes {
 public:
  ChildIds(std::shared_ptr<const PinnedTable> table, std::size_t child, StripeRange stripes)
      : ColumnBytes(std::move(table), kIds, child, stripes) {}

  void fill(std::uint64_t offset, MutableBytes out) override {
    ColumnBytes::fill(offset, out);
    for (std::size_t i = (6 - offset) % 8; i < out.size(); i += 8) out[i] &= std::byte{0x0F};
    for (std::size_t i = (7 - offset) % 8; i < out.size(); i += 8) out[i] = std::byte{0};
  }
};

}  // namespace

PinnedTable::PinnedTable(State state)
    : state_(std::move(state)), runs_(std::make_unique<StripeRuns[]>(state_.stripes.size())) {
  for (const PinnedStripe& stripe : state_.stripes) size_ += stripe.size;
}

void PinnedTable::check(std::size_t child, StripeRange stripes) const {
  if (child < state_.children.size() && stripes.first < stripes.last && stripes.last <= stripe_count()) return;
  throw Error(ErrorCode::kInvalidArgument, "child " + std::to_string(child) + ", stripes [" +
                                               std::to_string(stripes.first) + ", " + std::to_string(stripes.last) +
                                               ") of a table of " + std::to_string(state_.children.size()) +
                                               " children and " + std::to_string(stripe_count()) + " stripes");
}

BucketRange PinnedTable::buckets_of(StripeRange stripes) const {
  check(0, stripes);
  return state_.map.buckets_of(stripes);
}

std::uint64_t PinnedTable::rows(std::size_t child, StripeRange stripes) const {
  check(child, stripes);
  std::uint64_t rows = 0;
  for (std::size_t i = stripes.first; i < stripes.last; ++i) {
    rows += state_.coalesced ? runs_of(i).rows[child] : state_.stripes[i].size;
  }
  return rows;
}

std::shared_ptr<ByteProducer> PinnedTable::ids(std::size_t child, StripeRange stripes) const {
  check(child, stripes);
  auto self = std::static_pointer_cast<const PinnedTable>(shared_from_this());
  if (state_.coalesced) return std::make_shared<ChildIds>(std::move(self), child, stripes);
  return std::make_shared<ColumnBytes>(std::move(self), ColumnBytes::kIds, child, stripes);
}

std::shared_ptr<ByteProducer> PinnedTable::slot(std::size_t slot, std::size_t child, StripeRange stripes) const {
  check(child, stripes);
  if (slot >= state_.slots.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "slot " + std::to_string(slot) + " of a table of " + std::to_string(state_.slots.size()) + " slots");
  }
  auto self = std::static_pointer_cast<const PinnedTable>(shared_from_this());
  return std::make_shared<ColumnBytes>(std::move(self), slot, child, stripes);
}

std::span<const RowRun> PinnedTable::runs(std::size_t stripe, std::size_t child) const {
  const StripeRuns& found = runs_of(stripe);
  return std::span(found.runs).subspan(found.begins[child], found.begins[child + 1] - found.begins[child]);
}

const PinnedTable::StripeRuns& PinnedTable::runs_of(std::size_t stripe) const {
  StripeRuns& runs = runs_[stripe];
  std::call_once(runs.found, [&] { find_runs(state_.stripes[stripe], runs); });
  return runs;
}

void PinnedTable::find_runs(const PinnedStripe& stripe, StripeRuns& found) const {
  const std::size_t children = state_.children.size();
  found.begins.assign(children + 1, 0);
  found.rows.assign(children, 0);
  if (!state_.coalesced && stripe.live.empty()) {
    if (stripe.rows > 0) found.runs.push_back({0, stripe.rows});
    found.begins[1] = found.runs.size();
    found.rows[0] = stripe.rows;
    return;
  }
  // Counts the runs of each child in a first pass, and stores them in a second one.
  constexpr std::uint32_t kNever = kNoRow - 1;
  std::vector<std::uint32_t> last(children, kNever);
  const auto child_at = [&](std::uint32_t row) { return state_.coalesced ? child_of_row(stripe, row) : 0; };
  for_each_live(stripe, [&](std::uint32_t row) {
    const std::size_t child = child_at(row);
    if (last[child] + 1 != row) ++found.begins[child + 1];
    last[child] = row;
    ++found.rows[child];
  });
  for (std::size_t i = 1; i <= children; ++i) found.begins[i] += found.begins[i - 1];
  found.runs.resize(found.begins.back());
  std::vector<std::size_t> next(found.begins.begin(), found.begins.end() - 1);
  last.assign(children, kNever);
  for_each_live(stripe, [&](std::uint32_t row) {
    const std::size_t child = child_at(row);
    if (last[child] + 1 != row) found.runs[next[child]++] = {row, 0};
    ++found.runs[next[child] - 1].count;
    last[child] = row;
  });
}

}  // namespace weightstore::table
