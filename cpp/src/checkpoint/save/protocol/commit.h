#pragma once

// How shard 0 makes one checkpoint of the files of all shards: steps 6 to 9 at the top of protocol.cc.

#include <span>

#include "checkpoint/save/protocol/staging_directory.h"
#include "checkpoint/shard_record.h"
#include "weightstore/saver.h"

namespace weightstore::checkpoint {

// `records` are those of all shards, in order. Throws Error(kConflict) for records that do not fit together, and
// Error(kIo). If it throws, the previous checkpoint is still in place.
void commit(const SaveDirectories& directories, std::span<const ShardRecord> records, const SaveOptions& options,
            io::FileOps& ops);

}  // namespace weightstore::checkpoint
