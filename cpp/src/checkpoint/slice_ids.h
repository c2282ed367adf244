#pragma once

// Ids against the slice that a block of them is said to have.

#include <cstdint>
#include <span>

#include "weightstore/table_snapshot.h"

namespace weightstore::checkpoint {

// Throws Error(kCorrupt) naming the first id that does not lie in `slice`: whoever needs it would not look here.
void check_ids(std::span<const std::int64_t> ids, const BucketRange& slice);

}  // namespace weightstore::checkpoint
