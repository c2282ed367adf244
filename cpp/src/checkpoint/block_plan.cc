#include "checkpoint/block_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

// Of all columns of the table, whether they are saved or filtered out, so that all columns are cut alike.
std::uint64_t widest_row(const TableSnapshot& snapshot) {
  std::uint64_t widest = sizeof(std::int64_t);
  for (const SlotInfo& slot : snapshot.slots()) widest = std::max(widest, slot.row_bytes);
  return widest;
}

PlannedBlock rows_in(const WriteBlock& block, StripeRange stripes, std::uint64_t rows) {
  PlannedBlock planned{&block, "", block.shape(), 0, stripes, block.snapshot()->buckets_of(stripes)};
  const std::uint64_t all_rows = planned.shape.front();
  planned.nbytes = all_rows == 0 ? 0 : block.nbytes() / all_rows * rows;
  planned.shape.front() = rows;
  return planned;
}

Error same_name(const PlannedBlock& a, const PlannedBlock& b, const std::string& what) {
  Error error(ErrorCode::kInvalidArgument,
              "'" + printable(a.block->tensor_name()) + "' (" + std::string(to_string(a.block->kind())) + ") and '" +
                  printable(b.block->tensor_name()) + "' (" + std::string(to_string(b.block->kind())) +
                  ") would both be " + what + "; rename one of them, or save it once");
  error.in_tensor(b.block->tensor_name());
  return error;
}

}  // namespace

std::vector<PlannedBlock> cut(const WriteBlock& block, std::uint64_t limit) {
  if (!block.is_column()) return {{&block, "", block.shape(), block.nbytes(), {}, {}}};
  const TableSnapshot& snapshot = *block.snapshot();
  if (limit == 0) return {rows_in(block, snapshot.all_stripes(), block.shape().front())};
  const std::uint64_t max_rows = limit / widest_row(snapshot);
  std::vector<PlannedBlock> planned;
  StripeRange range{0, 0};
  std::uint64_t rows = 0;
  for (std::size_t stripe = 0; stripe < snapshot.stripe_count(); ++stripe) {
    const std::uint64_t more = snapshot.rows(block.child(), {stripe, stripe + 1});
    if (range.last > range.first && rows + more > max_rows) {
      planned.push_back(rows_in(block, range, rows));
      range.first = stripe;
      rows = 0;
    }
    range.last = stripe + 1;
    rows += more;
  }
  planned.push_back(rows_in(block, range, rows));
  return planned;
}

void check_names(std::span<const PlannedBlock> blocks) {
  std::map<std::string_view, const PlannedBlock*> keys;
  std::map<std::pair<std::string_view, std::size_t>, const PlannedBlock*> names;
  std::set<std::string_view> tables;
  for (const PlannedBlock& block : blocks) {
    if (block.block->is_column()) tables.insert(block.block->table());
  }
  for (const PlannedBlock& block : blocks) {
    // A load finds its targets by these names.
    if (!block.block->is_column() && tables.contains(block.block->tensor_name())) {
      throw Error(ErrorCode::kInvalidArgument, "a table and a tensor both have this name; rename one of them")
          .in_tensor(block.block->tensor_name());
    }
    if (const auto [it, added] = keys.emplace(block.key, &block); !added) {
      throw same_name(*it->second, block, "called '" + printable(block.key) + "' on disk");
    }
    const std::pair<std::string_view, std::size_t> name(block.block->tensor_name(), block.stripes.first);
    if (const auto [it, added] = names.emplace(name, &block); !added) {
      throw same_name(*it->second, block, "the tensor '" + printable(block.block->tensor_name()) + "'");
    }
  }
}

}  // namespace weightstore::checkpoint
