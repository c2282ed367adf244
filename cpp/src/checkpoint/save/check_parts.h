#pragma once

// Whether what all shards saved can be one checkpoint.

#include <span>

#include "checkpoint/shard_record.h"

namespace weightstore::checkpoint {

// Throws Error(kConflict) that names the shards: for a name that two of them have, for parts of a table that overlap or
// are cut from another number of buckets, for columns of another type or row shape, and for a slot that has not the
// rows of the table's other columns.
void check_parts(std::span<const ShardRecord> records);

}  // namespace weightstore::checkpoint
