#pragma once

// Loads the rows of tables, block by block.

#include <cstdint>
#include <vector>

#include "checkpoint/checkpoint_index.h"
#include "checkpoint/load/load_plan.h"
#include "io/progress_meter.h"

namespace weightstore::checkpoint {

// One block of a table, whose ids may lie in the buckets of the target.
struct BlockLoad {
  const TableLoad* load;
  std::size_t block;  // position in CheckpointTensor::blocks of the ids and of every slot
};

// The blocks that a load has to read, the largest first. Makes room in the target tables for the rows to come.
std::vector<BlockLoad> blocks_to_load(const LoadPlan& plan, const CheckpointIndex& index);

// The size of the block in the file, of ids and slots together.
std::uint64_t bytes_of(const TensorTable& table, const BlockLoad& block);

// Loads the blocks with up to `threads` threads, counts their bytes, and reports on the calling thread.
void load_blocks(const CheckpointIndex& index, const std::vector<BlockLoad>& blocks, unsigned threads,
                 io::ProgressMeter& meter);

}  // namespace weightstore::checkpoint
