#pragma once

// The part of a save that one shard writes: its data files and its record.

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "checkpoint/block_plan.h"
#include "checkpoint/save/protocol/staging_directory.h"
#include "checkpoint/shard_record.h"
#include "io/file_ops.h"
#include "io/progress_meter.h"
#include "weightstore/saver.h"

namespace weightstore::checkpoint {

// A record of this shard without files.
ShardRecord new_record(const ShardPosition& shard, const SaveOptions& options, const std::string& attempt,
                       const std::string& session);

// Writes a record that says that the shard has failed, so that shard 0 does not wait for its part. The record is always
// written to the target: whether the new checkpoint is staged depends on the options of shard 0, and this shard may
// have failed because its own options differ. Throws Error(kIo).
void write_failure(const SaveDirectories& directories, ShardRecord record, std::string_view why, io::FileOps& ops);

// Thread-compatible. The arguments of the constructor outlive the object.
class ShardPart {
 public:
  // Removes the record of an earlier try of this shard under the same attempt.
  ShardPart(const SaveDirectories& directories, ShardRecord record, const SaveOptions& options, io::FileOps& ops);

  const ShardRecord& record() const { return record_; }
  void set_session(std::string session) { record_.session = std::move(session); }

  // Writes the data files, each on a thread of its own. Removes them again when it throws.
  void write_files(std::span<const PlannedFile> files, io::ProgressMeter& meter);
  // Writes the record: from now on shard 0 can use the part.
  void publish();
  // Removes the files, and tells shard 0 why this shard has failed. Only shard 0 takes back a published part: shard 0
  // may already be committing the published parts of other shards.
  void roll_back(std::string_view why) noexcept;

 private:
  std::filesystem::path record_path() const;
  bool is_in_place(const std::string& text) const;

  const SaveDirectories& directories_;
  ShardRecord record_;
  const SaveOptions& options_;
  io::FileOps& ops_;
  bool published_ = false;
};

}  // namespace weightstore::checkpoint
