#pragma once

// What a load reads, and where it goes; and all that does not fit.

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

struct DenseJob {
  const LoadTarget* target;
  const CheckpointTensor* source;
};

// One child of one table.
struct TableJob {
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
  std::vector<DenseJob> dense;
  std::vector<TableJob> tables;
};

// Throws one Error that lists everything in `info` that the checkpoint cannot satisfy, and with `strict` what is
// missing on either side.
LoadPlan plan_load(const CheckpointIndex& index, std::span<const std::shared_ptr<HashTable>> tables,
                   std::span<const LoadTarget> tensors, std::string_view info, bool strict);

// {destination: {source: [columns]}} for all targets.
std::string default_info(std::span<const std::shared_ptr<HashTable>> tables, std::span<const LoadTarget> tensors);

}  // namespace weightstore::checkpoint
