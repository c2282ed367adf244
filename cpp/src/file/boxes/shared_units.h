#pragma once

// The blocks that a rank writes together with others (box_exchange.h), as far as it has bytes of them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "file/boxes/planned_box.h"

namespace weightstore {

// What one box has of one block.
struct SharedUnit {
  std::uint64_t block;
  std::size_t box;
  std::uint64_t begin;  // of the block, in the tensor
  std::uint64_t end;
  std::uint64_t first;  // runs of the box that touch it
  std::uint64_t last;
};

// In the order of the blocks, in which all ranks go through them.
std::vector<SharedUnit> shared_units(std::span<const PlannedBox> boxes);

// Copies what the box has of a block to its place there. Returns the number of bytes.
std::uint64_t copy_runs(const SharedUnit& unit, const PlannedBox& planned, MutableBytes block, BoxScratch& scratch);

}  // namespace weightstore
