#pragma once

// Which blocks of a shard go to which file, cut how, under which names.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weightstore/saver.h"

namespace weightstore::checkpoint {

// A block, or a part of one that was cut, as it will lie in a file.
struct PlannedBlock {
  const WriteBlock* block;
  std::string key;  // the tensor's name in the file
  Shape shape;
  std::uint64_t nbytes = 0;
  StripeRange stripes;  // of a column
  BucketRange slice;    // of a column: the buckets of these stripes
};

struct PlannedFile {
  std::uint64_t number = 0;  // among the files of this shard
  std::vector<PlannedBlock> blocks;
  std::uint64_t nbytes = 0;
};

struct ShardPosition {
  std::uint64_t index;
  std::uint64_t count;
  unsigned parallel;
};

// The parts in which a block is written: each column of a table in the same ones, of at most `limit` bytes in its
// widest column unless a single stripe has more. Limit 0: one part. Keys are left empty.
std::vector<PlannedBlock> cut(const WriteBlock& block, std::uint64_t limit);

// Files that have blocks; none is empty. Throws Error(kInvalidArgument) when two blocks would have one name.
std::vector<PlannedFile> plan_plain(std::span<const WriteBlock> blocks, const ShardPosition& shard,
                                    std::uint64_t max_block_bytes);
std::vector<PlannedFile> plan_recis(std::span<const WriteBlock> blocks, const ShardPosition& shard,
                                    std::uint64_t max_block_bytes);

// Throws unless all keys, all pairs of tensor name and slice, and the names of dense tensors and of tables differ.
void check_names(std::span<const PlannedBlock> blocks);

}  // namespace weightstore::checkpoint
