#pragma once

// What the other shards do in a save: steps 2 to 4 at the top of protocol.cc.

#include <span>

#include "checkpoint/save/protocol/protocol.h"
#include "io/progress_meter.h"

namespace weightstore::checkpoint {

// Runs a save on a shard other than 0: finds the save of shard 0, and writes this shard's part of it. Throws Error as
// Saver::save() does.
void follow_save(const SaveContext& context, PendingSave& save, std::span<const PlannedFile> files,
                 io::ProgressMeter& meter);

// Tells shard 0 why this shard has failed, in the save that the token names. Throws Error(kIo).
void write_failure_to(const SaveContext& context, const std::filesystem::path& directory, const Token& token,
                      std::string_view why);

}  // namespace weightstore::checkpoint
