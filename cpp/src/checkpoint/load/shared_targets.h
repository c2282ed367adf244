#pragma once

// Dense targets of a load that share memory, as the tied weights of a model do.

#include <span>
#include <vector>

#include "checkpoint/load/load_plan.h"

namespace weightstore::checkpoint {

// The order in which a load reads its dense tensors, so that no two reads write to the same memory at once.
struct DenseOrder {
  std::vector<DenseJob> together;    // no two of them share memory
  std::vector<DenseJob> one_by_one;  // each shares memory with one before it
};

// Targets may share memory where the checkpoint has the same bytes for all of them, which is compared here by reading
// both; a target that lies inside of another one is then left out, as it is loaded with it. Otherwise throws
// Error(kInvalidArgument) naming the two targets. Nothing of the targets is read or changed.
DenseOrder order_dense(const Reader& reader, std::span<const DenseJob> jobs);

}  // namespace weightstore::checkpoint
