#pragma once

// How the parts of a checkpoint become one.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/shard_record.h"
#include "weightstore/saver.h"

namespace weightstore::checkpoint {

// Where a save takes place.
struct SavePlace {
  std::filesystem::path target;  // the checkpoint's directory
  std::filesystem::path work;    // where files are written: the target, or a directory that will be swapped with it

  bool swaps() const { return work != target; }
};

// The directory as an absolute path without symlinks; it is created when missing, and with `durable` it is there to
// stay.
std::filesystem::path prepare_directory(const std::filesystem::path& path, bool durable, io::FileOps& ops);

// Throws Error(kConflict) when the directory holds something that these options do not allow to be replaced.
void refuse_existing(const std::filesystem::path& directory, const SaveOptions& options, io::FileOps& ops);

SavePlace place_of(const std::filesystem::path& target, const SaveOptions& options, std::string_view attempt);

// Waits until shard 0 has dealt with the part that this shard gave to another attempt of the same session. Otherwise
// shard 0 would take the new part for a leftover when it begins the other attempt. Throws Error(kIo) after `timeout`.
void wait_for_earlier_part(const std::filesystem::path& target, const ShardRecord& own,
                           std::chrono::milliseconds timeout, const std::function<void()>& watch, io::FileOps& ops);

// Step 4 of commit.cc, on shard 0.
std::vector<ShardRecord> collect_records(const SavePlace& place, const ShardRecord& own,
                                         std::chrono::milliseconds timeout, const std::function<void()>& watch,
                                         io::FileOps& ops);

// Steps 5 to 8.
void commit(const SavePlace& place, std::span<const ShardRecord> records, const SaveOptions& options, io::FileOps& ops);

}  // namespace weightstore::checkpoint
