#pragma once

// Checks ids against the buckets of their block.

#include <cstdint>
#include <span>

#include "weightstore/table_snapshot.h"

namespace weightstore::checkpoint {

// Throws Error(kCorrupt) that names the first id outside `buckets`. A load that needs this id would not look in the
// block.
void check_ids(std::span<const std::int64_t> ids, const BucketRange& buckets);

}  // namespace weightstore::checkpoint
