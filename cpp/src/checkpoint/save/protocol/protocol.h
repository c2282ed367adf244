#pragma once

// One shard's way through a save. The rule that keeps saves apart, and the steps of a save, are at the top of
// protocol.cc.

#include <cerrno>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "checkpoint/block_plan.h"
#include "checkpoint/save/protocol/lease.h"
#include "checkpoint/save/protocol/save_history.h"
#include "checkpoint/save/protocol/token.h"
#include "weightstore/error.h"
#include "weightstore/saver.h"

namespace weightstore {

// What a shard knows and holds from the beginning of a save to its end.
class PendingSave {
 public:
  std::filesystem::path directory;  // absolute and without symlinks; empty before open_save()
  checkpoint::ExpectedSave expected;
  checkpoint::SaveHistory::Series series;  // without an attempt
  std::optional<checkpoint::Lease> lock;   // on shard 0, after open_save()
};

namespace checkpoint {

// Which shard saves, where, and how.
struct SaveContext {
  const std::filesystem::path& path;
  ShardPosition shard;
  const SaveOptions& options;
  io::FileOps& ops;
};

// Without an attempt this counts the save. Throws Error(kInvalidArgument) for a bad attempt or run.
std::shared_ptr<PendingSave> new_save(const SaveContext& context);

// Creates the directory if it is missing. On shard 0 it also takes the lock, or throws Error(kConflict).
void open_save(const SaveContext& context, PendingSave& save);

// Writes this shard's part; on shard 0 it also waits for the other shards and commits. Needs open_save().
void run_save(const SaveContext& context, PendingSave& save, std::span<const PlannedFile> files);

// Tells shard 0 that this shard has failed. If only the token of shard 0 says which save this is, the call waits up to
// two seconds for the token. Does nothing on shard 0, nor for a save of another run.
void report_failure(const SaveContext& context, PendingSave& save, std::string_view why) noexcept;

// Does `step`, which comes before the shard has written anything, and reports to shard 0 when it fails. After a timeout
// there is no shard 0 to report to.
template <class Step>
auto do_or_report(const SaveContext& context, PendingSave& save, const Step& step) {
  try {
    return step();
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    if (known == nullptr || known->os_errno() != ETIMEDOUT) report_failure(context, save, error.what());
    throw;
  }
}

}  // namespace checkpoint
}  // namespace weightstore
