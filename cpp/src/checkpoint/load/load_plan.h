#pragma once

// The plan of a load: which tensors of the checkpoint go to which targets.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint_index.h"
#include "weightstore/hash_table.h"
#include "weightstore/loader.h"

namespace weightstore::checkpoint {

// A dense tensor to load.
struct DenseLoad {
  const LoadTarget* target;
  const CheckpointTensor* source;
  std::string source_name;
};

// The rows of one child of a table to load.
struct TableLoad {
  HashTable* table;
  std::size_t child;
  const CheckpointTensor* ids;
  struct Slot {
    std::size_t number;  // in the table
    std::uint64_t row_bytes;
    const CheckpointTensor* source;
    std::string name;  // in the checkpoint
  };
  std::vector<Slot> slots;
};

struct LoadPlan {
  std::vector<DenseLoad> dense;
  std::vector<TableLoad> tables;
};

// Throws one Error that lists everything in `info` that does not fit the checkpoint. With `strict` it also lists what
// is missing on either side.
LoadPlan plan_load(const CheckpointIndex& index, std::span<const std::shared_ptr<HashTable>> tables,
                   std::span<const LoadTarget> tensors, std::string_view info, bool strict);

// The load info {destination: {source: [columns]}} for all targets, as JSON.
std::string default_info(std::span<const std::shared_ptr<HashTable>> tables, std::span<const LoadTarget> tensors);

}  // namespace weightstore::checkpoint
