#include "checkpoint/block_plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

// The same for all columns of a table, whichever of them were filtered out.
std::uint64_t widest_row(const TableSnapshot& snapshot) {
  std::uint64_t widest = sizeof(std::int64_t);
  for (const SlotInfo& slot : snapshot.slots()) widest = std::max(widest, slot.row_bytes);
  return widest;
}

PlannedBlock part_of(const WriteBlock& block, StripeRange stripes, std::uint64_t rows) {
  PlannedBlock part{&block, "", block.shape(), 0, stripes, block.snapshot()->slice_of(stripes)};
  const std::uint64_t all_rows = part.shape.front();
  part.nbytes = all_rows == 0 ? 0 : block.nbytes() / all_rows * rows;
  part.shape.front() = rows;
  return part;
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
  if (block.kind() == BlockKind::kDense) return {{&block, "", block.shape(), block.nbytes(), {}, {}}};
  const TableSnapshot& snapshot = *block.snapshot();
  if (limit == 0) return {part_of(block, snapshot.all_stripes(), block.shape().front())};
  const std::uint64_t max_rows = limit / widest_row(snapshot);
  std::vector<PlannedBlock> parts;
  StripeRange range{0, 0};
  std::uint64_t rows = 0;
  for (std::size_t stripe = 0; stripe < snapshot.stripe_count(); ++stripe) {
    const std::uint64_t more = snapshot.rows(block.child(), {stripe, stripe + 1});
    if (range.last > range.first && rows + more > max_rows) {
      parts.push_back(part_of(block, range, rows));
      range.first = stripe;
      rows = 0;
    }
    range.last = stripe + 1;
    rows += more;
  }
  parts.push_back(part_of(block, range, rows));
  return parts;
}

void check_names(std::span<const PlannedBlock> blocks) {
  std::map<std::string_view, const PlannedBlock*> keys;
  std::map<std::pair<std::string_view, std::size_t>, const PlannedBlock*> names;
  std::set<std::string_view> tables;
  for (const PlannedBlock& block : blocks) {
    if (block.block->kind() != BlockKind::kDense) tables.insert(block.block->table());
  }
  for (const PlannedBlock& block : blocks) {
    // A load says by such a name which of its targets it means.
    if (block.block->kind() == BlockKind::kDense && tables.contains(block.block->tensor_name())) {
      throw Error(ErrorCode::kInvalidArgument, "a table and a tensor are both called so; rename one of them")
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
