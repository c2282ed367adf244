#pragma once

// What shard 0 does in a save: steps 1, 2 and 5 at the top of protocol.cc.

#include <span>

#include "checkpoint/save/protocol/protocol.h"
#include "io/progress_meter.h"

namespace weightstore::checkpoint {

// Runs a save on shard 0: writes its own part, waits for the records of the other shards, and commits. The caller holds
// the lock. Throws Error as Saver::save() does.
void lead_save(const SaveContext& context, const PendingSave& save, std::span<const PlannedFile> files,
               io::ProgressMeter& meter);

}  // namespace weightstore::checkpoint
