#pragma once

// One shard's way through a save: the steps at the top of commit.cc.

#include <cerrno>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "checkpoint/block_plan.h"
#include "checkpoint/save/held_file.h"
#include "checkpoint/save/process_memory.h"
#include "checkpoint/save/session.h"
#include "weightstore/error.h"
#include "weightstore/saver.h"

namespace weightstore {

// What a shard knows and holds from the beginning of a save to its end.
class SaveTurn {
 public:
  std::filesystem::path directory;  // absolute and without symlinks; empty before open_turn()
  checkpoint::SaveClaim claim;
  checkpoint::ProcessMemory::Place place;    // without an attempt
  std::optional<checkpoint::HeldFile> lock;  // on shard 0, after open_turn()
};

namespace checkpoint {

// Which shard saves where, and how.
struct ShardJob {
  const std::filesystem::path& path;
  ShardPosition shard;
  const SaveOptions& options;
  io::FileOps& ops;
};

// Without an attempt this counts the save. Throws Error(kInvalidArgument) for a bad attempt or run.
std::shared_ptr<SaveTurn> new_turn(const ShardJob& job);

// Creates the directory where it is missing; on shard 0 it also takes the lock, or throws Error(kConflict).
void open_turn(const ShardJob& job, SaveTurn& turn);

// Writes this shard's part; on shard 0 it also waits for the others and commits. The turn is open.
void save_part(const ShardJob& job, SaveTurn& turn, std::span<const PlannedFile> files);

// Tells shard 0 that this shard's part will not come. Where only the token of shard 0 says which save that is, this
// call waits up to two seconds for the token. Saves of other runs are not told. Does nothing on shard 0.
void tell_failure(const ShardJob& job, SaveTurn& turn, std::string_view why) noexcept;

// Does `step`, which comes before there is anything to withdraw, and tells shard 0 when it fails. A shard that has
// waited its whole timeout for shard 0 has nobody to tell.
template <class Step>
auto do_or_tell(const ShardJob& job, SaveTurn& turn, const Step& step) {
  try {
    return step();
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    if (known == nullptr || known->os_errno() != ETIMEDOUT) tell_failure(job, turn, error.what());
    throw;
  }
}

}  // namespace checkpoint
}  // namespace weightstore
