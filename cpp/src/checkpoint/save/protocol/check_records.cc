#include "checkpoint/save/protocol/check_records.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "file/boxes/box_cover.h"
#include "file/bucket_range_text.h"
#include "weightstore/error.h"

// A load would refuse such a checkpoint, too, but by then the previous checkpoint would be gone.

namespace weightstore::checkpoint {
namespace {

// A block, and the shard that saved it.
struct SavedBlock {
  const RecordedBlock* block;
  std::uint64_t shard;
};

// The blocks of a column by their first bucket.
using Column = std::map<std::uint64_t, SavedBlock>;

Error conflict(const SavedBlock& a, const SavedBlock& b, const std::string& what, const std::string& advice) {
  const std::string who = a.shard == b.shard
                              ? " (shard " + std::to_string(a.shard) + "); "
                              : " (shards " + std::to_string(a.shard) + " and " + std::to_string(b.shard) + "); ";
  Error error(ErrorCode::kConflict, what + who + advice);
  error.in_tensor(b.block->name);
  return error;
}

std::uint64_t rows_of(const SavedBlock& saved) { return saved.block->shape.front(); }

bool same_rows(const SavedBlock& a, const SavedBlock& b) {
  const Shape& x = a.block->shape;
  const Shape& y = b.block->shape;
  return a.block->dtype == b.block->dtype && std::equal(x.begin() + 1, x.end(), y.begin() + 1, y.end());
}

void add(Column& column, const SavedBlock& saved) {
  const BucketRange& buckets = saved.block->buckets;
  const auto next = column.lower_bound(buckets.begin);
  if (!column.empty()) {
    const SavedBlock& other = column.begin()->second;
    if (!same_rows(other, saved)) {
      throw conflict(other, saved, "has blocks of different types or row shapes", "make the table alike on all shards");
    }
    if (other.block->buckets.size != buckets.size) {
      throw conflict(other, saved,
                     "is cut from " + std::to_string(other.block->buckets.size) + " and " +
                         std::to_string(buckets.size) + " buckets",
                     "give all shards the same number");
    }
  }
  const auto overlaps = [&](Column::iterator it) {
    return it->second.block->buckets.begin < buckets.end && buckets.begin < it->second.block->buckets.end;
  };
  const bool with_next = next != column.end() && (overlaps(next) || next->first == buckets.begin);
  if (with_next || (next != column.begin() && overlaps(std::prev(next)))) {
    const SavedBlock& other = with_next ? next->second : std::prev(next)->second;
    throw conflict(
        other, saved,
        "its blocks " + bucket_range_text(other.block->buckets) + " and " + bucket_range_text(buckets) + " overlap",
        "give every shard buckets of its own");
  }
  column.emplace_hint(next, buckets.begin, saved);
}

// `other` must have every block of `column`, with the same number of rows.
void check_rows(const Column& column, const Column& other) {
  for (const auto& [begin, saved] : column) {
    const auto found = other.find(begin);
    if (found != other.end() && found->second.block->buckets == saved.block->buckets &&
        rows_of(found->second) == rows_of(saved)) {
      continue;
    }
    const SavedBlock& sample = other.begin()->second;
    throw conflict(sample, saved,
                   "has a block " + bucket_range_text(saved.block->buckets) + " with " +
                       std::to_string(rows_of(saved)) + " rows that '" + printable(sample.block->name) + "' has not",
                   "give the table the same slots on all shards, and filter alike");
  }
}

constexpr const char* kSaveAlike = "give all shards the same distributed tensor";

void add(std::vector<SavedBlock>& chunks, const SavedBlock& saved) {
  if (!chunks.empty()) {
    const SavedBlock& other = chunks.front();
    if (other.block->dtype != saved.block->dtype || other.block->whole != saved.block->whole) {
      throw conflict(other, saved, "has chunks of different types or whole shapes", kSaveAlike);
    }
  }
  chunks.push_back(saved);
}

void check_chunks(std::span<const SavedBlock> chunks) {
  std::vector<BoxPlace> places;
  for (const SavedBlock& chunk : chunks) places.push_back({chunk.block->chunk_begin, chunk.block->shape});
  const auto problem = why_no_cover(chunks.front().block->whole, places);
  if (problem) throw conflict(chunks.front(), chunks.back(), *problem, "every rank of its mesh must save its part");
}

}  // namespace

void check_records(std::span<const ShardRecord> records) {
  std::map<std::string_view, SavedBlock> keys;
  std::map<std::string_view, SavedBlock> dense;
  std::map<std::string_view, std::vector<SavedBlock>> chunked;
  std::map<std::string_view, std::map<std::string_view, Column>> tables;  // by table and slot
  for (const ShardRecord& record : records) {
    for (const RecordedFile& file : record.files) {
      for (const RecordedBlock& block : file.blocks) {
        const SavedBlock saved{&block, record.shard};
        if (block.kind == BlockKind::kChunk) {
          add(chunked[block.name], saved);
        } else if (block.kind == BlockKind::kDense) {
          const auto [it, added] = dense.emplace(block.name, saved);
          if (!added) throw conflict(it->second, saved, "is there twice", "save it once");
        } else {
          add(tables[block.table][block.slot], saved);
        }
        const auto [it, added] = keys.emplace(block.key, saved);
        if (!added) {
          throw conflict(it->second, saved, "two blocks are called '" + printable(block.key) + "'", "rename one");
        }
      }
    }
  }
  for (const auto& [name, chunks] : chunked) {
    const auto other = dense.find(name);
    if (other != dense.end()) throw conflict(other->second, chunks.front(), "is there whole and in chunks", kSaveAlike);
    check_chunks(chunks);
    dense.emplace(name, chunks.front());  // for the names of tables
  }
  for (const auto& [table, columns] : tables) {
    const Column& first = columns.begin()->second;
    for (const auto& [slot, column] : columns) {
      check_rows(first, column);
      check_rows(column, first);
      for (const std::string_view name : {table, std::string_view(column.begin()->second.block->name)}) {
        const auto tensor = dense.find(name);
        if (tensor == dense.end()) continue;
        throw conflict(column.begin()->second, tensor->second, "a table and a tensor have this name", "rename one");
      }
    }
  }
}

}  // namespace weightstore::checkpoint
