#include "checkpoint/save/check_parts.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "file/bucket_range_text.h"
#include "weightstore/error.h"

// A reader refuses all of this too. But then the checkpoint that was there before is gone.

namespace weightstore::checkpoint {
namespace {

// A block, and who saved it.
struct Part {
  const RecordedBlock* block;
  std::uint64_t shard;
};

// By the first bucket.
using Column = std::map<std::uint64_t, Part>;

Error conflict(const Part& a, const Part& b, const std::string& what, const std::string& advice) {
  const std::string who = a.shard == b.shard
                              ? " (shard " + std::to_string(a.shard) + "); "
                              : " (shards " + std::to_string(a.shard) + " and " + std::to_string(b.shard) + "); ";
  Error error(ErrorCode::kConflict, what + who + advice);
  error.in_tensor(b.block->name);
  return error;
}

std::uint64_t rows_of(const Part& part) { return part.block->shape.front(); }

bool same_rows(const Part& a, const Part& b) {
  const Shape& x = a.block->shape;
  const Shape& y = b.block->shape;
  return a.block->dtype == b.block->dtype && std::equal(x.begin() + 1, x.end(), y.begin() + 1, y.end());
}

void add(Column& column, const Part& part) {
  const BucketRange& slice = part.block->slice;
  const auto next = column.lower_bound(slice.begin);
  if (!column.empty()) {
    const Part& other = column.begin()->second;
    if (!same_rows(other, part)) {
      throw conflict(other, part, "has parts of different types or row shapes", "make the table alike on all shards");
    }
    if (other.block->slice.size != slice.size) {
      throw conflict(
          other, part,
          "is cut from " + std::to_string(other.block->slice.size) + " and " + std::to_string(slice.size) + " buckets",
          "give all shards the same number");
    }
  }
  const auto overlaps = [&](Column::iterator it) {
    return it->second.block->slice.begin < slice.end && slice.begin < it->second.block->slice.end;
  };
  const bool with_next = next != column.end() && (overlaps(next) || next->first == slice.begin);
  if (with_next || (next != column.begin() && overlaps(std::prev(next)))) {
    const Part& other = with_next ? next->second : std::prev(next)->second;
    throw conflict(other, part,
                   "its parts " + slice_text(other.block->slice) + " and " + slice_text(slice) + " overlap",
                   "give every shard its own slice of the table");
  }
  column.emplace_hint(next, slice.begin, part);
}

// Every part of `column` must be there in `other`, with as many rows.
void check_rows(const Column& column, const Column& other) {
  for (const auto& [begin, part] : column) {
    const auto found = other.find(begin);
    if (found != other.end() && found->second.block->slice == part.block->slice &&
        rows_of(found->second) == rows_of(part)) {
      continue;
    }
    const Part& sample = other.begin()->second;
    throw conflict(sample, part,
                   "has a part " + slice_text(part.block->slice) + " with " + std::to_string(rows_of(part)) +
                       " rows that '" + printable(sample.block->name) + "' has not",
                   "give the table the same slots on all shards, and filter alike");
  }
}

}  // namespace

void check_parts(std::span<const ShardRecord> records) {
  std::map<std::string_view, Part> keys;
  std::map<std::string_view, Part> dense;
  std::map<std::string_view, std::map<std::string_view, Column>> tables;  // by table and slot
  for (const ShardRecord& record : records) {
    for (const RecordedFile& file : record.files) {
      for (const RecordedBlock& block : file.blocks) {
        const Part part{&block, record.shard};
        if (block.kind == BlockKind::kDense) {
          const auto [it, added] = dense.emplace(block.name, part);
          if (!added) throw conflict(it->second, part, "is there twice", "save it once");
        } else {
          add(tables[block.table][block.slot], part);
        }
        const auto [it, added] = keys.emplace(block.key, part);
        if (!added) {
          throw conflict(it->second, part, "two parts are called '" + printable(block.key) + "'", "rename one");
        }
      }
    }
  }
  for (const auto& [table, columns] : tables) {
    const Column& first = columns.begin()->second;
    for (const auto& [slot, column] : columns) {
      check_rows(first, column);
      check_rows(column, first);
      for (const std::string_view name : {table, std::string_view(column.begin()->second.block->name)}) {
        const auto tensor = dense.find(name);
        if (tensor == dense.end()) continue;
        throw conflict(column.begin()->second, tensor->second, "a table and a tensor are called so", "rename one");
      }
    }
  }
}

}  // namespace weightstore::checkpoint
