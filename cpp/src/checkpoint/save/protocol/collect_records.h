#pragma once

// The records of a save: how shard 0 collects them, and how another shard sees that shard 0 still needs an earlier one.

#include <chrono>
#include <filesystem>
#include <functional>
#include <vector>

#include "checkpoint/save/protocol/staging_directory.h"
#include "checkpoint/shard_record.h"
#include "io/file_ops.h"

namespace weightstore::checkpoint {

// Shard 0 waits for a record of its session from every shard. A record counts when every file that it names is there
// and whole. `own` is the record of shard 0, which names the session. Calls `watch` between two looks, which may throw.
// Throws Error(kIo) with the reason of a shard that failed, or with ETIMEDOUT and the missing shards after `timeout`.
std::vector<ShardRecord> collect_records(const SaveDirectories& directories, const ShardRecord& own,
                                         std::chrono::milliseconds timeout, const std::function<void()>& watch,
                                         io::FileOps& ops);

// Another shard waits until shard 0 has ended the earlier attempt, of the same session, for which this shard has
// written a record. Otherwise shard 0, when it begins the earlier attempt, would remove the new files as stale. Throws
// Error(kIo) with ETIMEDOUT after `timeout`.
void wait_for_earlier_attempt(const std::filesystem::path& target, const ShardRecord& own,
                              std::chrono::milliseconds timeout, const std::function<void()>& watch, io::FileOps& ops);

}  // namespace weightstore::checkpoint
