#pragma once

// Dense targets that share memory, as the tied weights of a model do.

#include <span>
#include <vector>

#include "checkpoint/load/load_plan.h"

namespace weightstore::checkpoint {

// The order in which a load reads dense tensors, so that no two reads write to the same memory at once.
struct DenseOrder {
  std::vector<DenseLoad> together;    // no two of these share memory
  std::vector<DenseLoad> one_by_one;  // each shares memory with an earlier one
};

// Targets may share memory if the checkpoint has the same bytes for it. order_dense() compares these bytes in the
// checkpoint. It leaves out a target that lies inside another one, because the other one fills it. Throws
// Error(kInvalidArgument) that names two targets whose bytes differ. Does not read or change the targets.
DenseOrder order_dense(const CheckpointIndex& index, std::span<const DenseLoad> loads);

}  // namespace weightstore::checkpoint
