#pragma once

// The blocks of a shard: how tables are cut into blocks, how the blocks are called, and which file has which blocks.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weightstore/saver.h"

namespace weightstore::checkpoint {

// A block as it will lie in a file: a whole WriteBlock, or some of its stripes.
struct PlannedBlock {
  const WriteBlock* block;
  std::string key;  // the name of the tensor in the file
  Shape shape;
  std::uint64_t nbytes = 0;
  StripeRange stripes;  // of a column
  BucketRange buckets;  // of a column: the buckets of these stripes
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

// Cuts a column at the borders of its stripes, so that the widest column of the table has at most `limit` bytes in each
// block, unless a single stripe has more. All columns of a table are cut alike. Limit 0: one block. Keys are left
// empty.
std::vector<PlannedBlock> cut(const WriteBlock& block, std::uint64_t limit);

// The files of a shard; each has at least one block. Throw Error(kInvalidArgument) when two blocks would have one name.
std::vector<PlannedFile> plan_plain(std::span<const WriteBlock> blocks, const ShardPosition& shard,
                                    std::uint64_t max_block_bytes);
std::vector<PlannedFile> plan_recis(std::span<const WriteBlock> blocks, const ShardPosition& shard,
                                    std::uint64_t max_block_bytes);

// Throws Error(kInvalidArgument) when two blocks have one key, when two blocks of one tensor name have the same
// buckets, or when a dense tensor has the name of a table.
void check_names(std::span<const PlannedBlock> blocks);

}  // namespace weightstore::checkpoint
