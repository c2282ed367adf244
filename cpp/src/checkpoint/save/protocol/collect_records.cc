#include "checkpoint/save/protocol/collect_records.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <string>

#include "checkpoint/checkpoint_index.h"
#include "checkpoint/save/protocol/data_files.h"
#include "checkpoint/save/protocol/token.h"
#include "checkpoint/save_names.h"
#include "io/paths.h"
#include "io/text_file.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

// Reads the record of `shard`. Returns why it does not belong to this save; empty when it does.
std::string read_record(const std::filesystem::path& path, ShardRecord& record, std::uint64_t shard,
                        const ShardRecord& own, io::FileOps& ops) {
  try {
    record = decode_record(io::read_text_file(path, kMaxIndexBytes, ops));
  } catch (const Error& error) {
    // The shard may have begun anew and removed its record since shard 0 saw it. Other failures to read end the save.
    const bool gone = error.os_errno() == ENOENT || error.os_errno() == ESTALE;
    if (error.code() == ErrorCode::kIo && !gone) throw;
    return error.what();
  }
  // A shard that failed may have failed because its options differ.
  const bool same_layout = record.layout == own.layout || !record.error.empty();
  if (record.attempt != own.attempt || record.shard != shard || record.shard_num != own.shard_num || !same_layout) {
    return "its record is of another save (attempt '" + printable(record.attempt) + "', shard " +
           std::to_string(record.shard) + " of " + std::to_string(record.shard_num) + ", layout " +
           std::string(to_string(record.layout)) + ")";
  }
  if (record.session != own.session) {
    return "its record is of another run or of an earlier try ('" + printable(record.session) +
           "'); save again on all shards";
  }
  return "";
}

// Throws when the record says that the shard has failed.
void check_failure(const ShardRecord& record, const std::filesystem::path& path, const SaveDirectories& directories,
                   io::FileOps& ops) {
  if (record.error.empty()) return;
  ops.unlink(path.c_str());  // so that the next save waits for the shard
  throw Error(ErrorCode::kIo, "shard " + std::to_string(record.shard) + " failed: " + record.error)
      .in_file(directories.target.native());
}

// A shard that fails writes its record to the target, even where the new checkpoint is staged.
void check_failure_in_target(const SaveDirectories& directories, std::uint64_t shard, const ShardRecord& own,
                             io::FileOps& ops) {
  const std::filesystem::path path = directories.target / record_name(own.attempt, shard);
  if (!directories.is_staged() || !io::is_there(path, ops)) return;
  ShardRecord record;
  if (read_record(path, record, shard, own, ops).empty()) check_failure(record, path, directories, ops);
}

// Why the files that a record names cannot be used; empty when they can.
std::string problem_with_files(const ShardRecord& record, const std::filesystem::path& work, io::FileOps& ops) {
  for (const RecordedFile& file : record.files) {
    if (file.name.find('/') != std::string::npos) return "its record names the file '" + printable(file.name) + "'";
    try {
      std::uint64_t data_bytes = 0;
      for (const RecordedBlock& block : file.blocks) data_bytes = std::max(data_bytes, block.end);
      check_data_file(work / file.name, file, data_bytes, ops);
    } catch (const Error& error) {
      return error.what();
    }
  }
  return "";
}

// Looks for the record of one shard. Returns why it cannot be used yet; empty when it can.
std::string look_for_record(const SaveDirectories& directories, ShardRecord& record, std::uint64_t shard,
                            const ShardRecord& own, io::FileOps& ops) {
  check_failure_in_target(directories, shard, own, ops);
  const std::filesystem::path path = directories.work / record_name(own.attempt, shard);
  if (!io::is_there(path, ops)) return "no record of it";
  const std::string problem = read_record(path, record, shard, own, ops);
  if (!problem.empty()) return problem;
  check_failure(record, path, directories, ops);
  return problem_with_files(record, directories.work, ops);
}

Error missing_shards(const std::map<std::uint64_t, std::string>& missing, std::uint64_t shard_num,
                     std::chrono::milliseconds timeout) {
  std::string who;
  for (const auto& [shard, why] : missing) {
    who += (who.empty() ? "" : "; ") + std::string("shard ") + std::to_string(shard) + ": " + why;
  }
  Error error(ErrorCode::kIo, std::to_string(missing.size()) + " of " + std::to_string(shard_num) +
                                  " shards did not save their part within " + std::to_string(timeout.count()) +
                                  " ms (" + who + ")");
  error.equivalent_errno(ETIMEDOUT);
  return error;
}

// The records of one shard in one directory, by attempt.
std::map<std::string, std::filesystem::path> records_of_shard(const std::filesystem::path& directory,
                                                              std::uint64_t shard, io::FileOps& ops) {
  std::map<std::string, std::filesystem::path> records;
  try {
    for (const std::string& name : io::list_directory(directory, ops)) {
      const auto attempt = attempt_of_name(name);
      if (attempt && name == record_name(*attempt, shard)) records.emplace(*attempt, directory / name);
    }
  } catch (const Error& error) {
    if (error.os_errno() != ENOENT) throw;  // shard 0 may have removed the staging directory meanwhile
  }
  return records;
}

// Another attempt of the same session for which this shard has written a record that shard 0 has not removed yet.
std::optional<std::string> find_earlier_attempt(const std::filesystem::path& target, const ShardRecord& own,
                                                io::FileOps& ops) {
  for (const std::filesystem::path& directory : directories_of_all_saves(target, ops)) {
    for (const auto& [attempt, path] : records_of_shard(directory, own.shard, ops)) {
      if (attempt == own.attempt) continue;
      try {
        const ShardRecord record = decode_record(io::read_text_file(path, kMaxIndexBytes, ops));
        if (record.session == own.session && record.shard_num == own.shard_num && record.error.empty()) return attempt;
      } catch (const Error&) {
        // Removed meanwhile, or written by another version.
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<ShardRecord> collect_records(const SaveDirectories& directories, const ShardRecord& own,
                                         std::chrono::milliseconds timeout, const std::function<void()>& watch,
                                         io::FileOps& ops) {
  std::vector<ShardRecord> records(own.shard_num);
  std::map<std::uint64_t, std::string> missing;  // shard, and why its record cannot be used
  for (std::uint64_t shard = 0; shard < own.shard_num; ++shard) missing.emplace(shard, "");
  const auto deadline = ops.now() + timeout;
  PollInterval interval;
  while (true) {
    // Asked before the look, so that a record that was written in time is seen.
    const bool late = ops.now() >= deadline;
    for (auto it = missing.begin(); it != missing.end();) {
      it->second = look_for_record(directories, records[it->first], it->first, own, ops);
      it = it->second.empty() ? missing.erase(it) : std::next(it);
    }
    if (missing.empty()) return records;
    if (watch) watch();
    if (late) throw missing_shards(missing, own.shard_num, timeout).in_file(directories.target.native());
    ops.pause(interval.next());
  }
}

void wait_for_earlier_attempt(const std::filesystem::path& target, const ShardRecord& own,
                              std::chrono::milliseconds timeout, const std::function<void()>& watch, io::FileOps& ops) {
  const auto deadline = ops.now() + timeout;
  PollInterval interval;
  while (true) {
    const bool late = ops.now() >= deadline;
    const auto earlier = find_earlier_attempt(target, own, ops);
    if (!earlier) return;
    if (watch) watch();
    if (late) {
      throw Error(ErrorCode::kIo, "shard 0 has not ended the save '" + printable(*earlier) +
                                      "', for which this shard has written its part, within " +
                                      std::to_string(timeout.count()) +
                                      " ms; run shard 0, or pass another `run` when that save will never end")
          .in_file(target.native())
          .equivalent_errno(ETIMEDOUT);
    }
    ops.pause(interval.next());
  }
}

}  // namespace weightstore::checkpoint
