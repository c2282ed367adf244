#pragma once

// Whether the parts that all shards have saved fit together as one checkpoint.

#include <span>

#include "checkpoint/shard_record.h"

namespace weightstore::checkpoint {

// Throws Error(kConflict) that names the shards when
//  - two blocks have one name,
//  - the bucket ranges of two blocks of a column overlap, or count different numbers of buckets,
//  - the blocks of a column differ in type or row shape,
//  - two columns of a table do not have the same blocks with the same rows.
void check_records(std::span<const ShardRecord> records);

}  // namespace weightstore::checkpoint
