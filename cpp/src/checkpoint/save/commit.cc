// A save is committed in these steps. All shards take part in 1 to 4, shard 0 alone in the others.
//
//  1. Shard 0 takes the directory's lock, which keeps a second save out. It removes what dead saves left, except for
//     files of its own attempt.
//  2. Shard 0 publishes the token of the save, and the other shards wait for it: session.cc says which token a shard
//  may
//     join. A session that the caller named needs no token; there a shard waits until its part of an earlier save is
//     dealt with.
//  3. Every shard writes its data files, checked and synced, under names that carry the attempt and that no other file
//     has.
//  4. Every shard looks at the token again and writes its record: session, attempt, files with sizes and checksums of
//     their headers, blocks. A shard that fails writes the reason instead, always in the directory of the checkpoint,
//     even where the new checkpoint is built beside it (8).
//  5. Shard 0 waits for a record of its session from every shard. A record counts when every file that it names is
//  there
//     and whole. When shard 0 has all records, it removes the token.
//  6. Shard 0 merges the records, and refuses parts that do not fit together, such as two parts with the same bucket.
//  7. plain: shard 0 replaces the index, atomically. This is the commit: before it the old checkpoint is loaded, after
//     it the new one.
//     recis: shard 0 writes the final names of the data files to a journal, renames the files, writes tensorkey.json
//     and the description, and last the index. This is the commit.
//  8. recis, over a checkpoint that is there: 3 to 7 happened in a directory beside it, and shard 0 exchanges the two
//     directories. This is the commit.
//  9. Shard 0 removes records, journal, and files of the replaced checkpoint.
//
// A crash before the commit leaves the old checkpoint as it was, and files that the next save removes (by their names,
// or by the journal). A crash after it leaves the new checkpoint and, until the next save, files that nobody reads.

#include "checkpoint/save/commit.h"

#include <cerrno>
#include <map>
#include <set>

#include "checkpoint/attempt.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/layouts.h"
#include "checkpoint/save/check_parts.h"
#include "checkpoint/save/data_files.h"
#include "checkpoint/save/leftovers.h"
#include "checkpoint/save/session.h"
#include "codec/json.h"
#include "io/atomic_file.h"
#include "io/checked_io.h"
#include "io/file_source.h"
#include "io/text_file.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

// Reads what `shard` says about its part. Returns why that is nothing about this save; empty when it is.
std::string read_record(const std::filesystem::path& path, ShardRecord& record, std::uint64_t shard,
                        const ShardRecord& own, io::FileOps& ops) {
  try {
    record = decode_record(io::read_text_file(path, kMaxIndexBytes, ops));
  } catch (const Error& error) {
    // The shard may have begun anew, and removed it since we saw it. What else cannot be read is a reason to end.
    const bool gone = error.os_errno() == ENOENT || error.os_errno() == ESTALE;
    if (error.code() == ErrorCode::kIo && !gone) throw;
    return error.what();
  }
  // A shard that failed may have failed because of its options.
  const bool fits = record.layout == own.layout || !record.error.empty();
  if (record.attempt != own.attempt || record.shard != shard || record.shard_num != own.shard_num || !fits) {
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

// Throws when the record says that the shard's part will not come.
void check_failure(const ShardRecord& record, const std::filesystem::path& path, const SavePlace& place,
                   io::FileOps& ops) {
  if (record.error.empty()) return;
  ops.unlink(path.c_str());  // a shard that tries again is waited for
  throw Error(ErrorCode::kIo, "shard " + std::to_string(record.shard) + " failed: " + record.error)
      .in_file(place.target.native());
}

// Where the checkpoint is built beside its directory, shards that fail still tell it in the directory.
void check_told_failure(const SavePlace& place, std::uint64_t shard, const ShardRecord& own, io::FileOps& ops) {
  const std::filesystem::path path = place.target / record_name(own.attempt, shard);
  if (!place.swaps() || !io::is_there(path)) return;
  ShardRecord record;
  if (read_record(path, record, shard, own, ops).empty()) check_failure(record, path, place, ops);
}

// Another attempt to which this shard has given its part in the same session, while shard 0 has not ended it.
std::optional<std::string> earlier_part(const std::filesystem::path& target, const ShardRecord& own, io::FileOps& ops) {
  for (const std::filesystem::path& place : places_of_saves(target)) {
    for (const auto& [attempt, path] : records_of_shard(place, own.shard)) {
      if (attempt == own.attempt) continue;
      try {
        const ShardRecord record = decode_record(io::read_text_file(path, kMaxIndexBytes, ops));
        if (record.session == own.session && record.shard_num == own.shard_num && record.error.empty()) return attempt;
      } catch (const Error&) {
        // Gone meanwhile, or written by another version.
      }
    }
  }
  return std::nullopt;
}

// Why the part that a record describes cannot be used; empty when it can.
std::string problem_of(const ShardRecord& record, const std::filesystem::path& work, io::FileOps& ops) {
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

void sync(const std::filesystem::path& directory, io::FileOps& ops) {
  if (!io::sync_directory(directory.native(), ops)) {
    throw io::io_error(errno, "cannot sync the directory", directory.native());
  }
}

void commit_plain(const SavePlace& place, std::span<const ShardRecord> records, const SaveOptions& options,
                  io::FileOps& ops) {
  const std::string index = plain_index(records);
  std::set<std::string> replaced = checkpoint_files(place.target, ops).value_or(std::set<std::string>());
  ops.reached("records merged");
  io::write_text_file(place.target / kPlainIndex, index, {options.durable, true}, ops);
  ops.reached("index written");
  replaced.erase(kPlainIndex);
  for (const ShardRecord& record : records) {
    for (const RecordedFile& file : record.files) replaced.erase(file.name);
  }
  for (const std::string& name : replaced) ops.unlink((place.target / name).c_str());
}

void commit_recis(const SavePlace& place, std::span<const ShardRecord> records, const SaveOptions& options,
                  io::FileOps& ops) {
  std::map<std::string, std::string> renames;
  for (const ShardRecord& record : records) {
    for (const RecordedFile& file : record.files) renames.emplace(file.name, recis_file_name(record, file));
  }
  const auto json = recis_json(records);
  Value::List journal;
  for (const auto& [from, to] : renames) journal.push_back(to);
  for (const auto& [name, text] : json) journal.push_back(name);
  // What the journal names is removed when the commit fails: it must be ours.
  for (const Value& name : journal) {
    const std::filesystem::path path = place.work / *name.get_if<std::string>();
    if (!io::is_there(path)) continue;
    throw Error(ErrorCode::kConflict, "the file exists, and is no part of a checkpoint; move it away")
        .in_file(path.native())
        .with_errno(EEXIST);
  }
  ops.reached("records merged");
  io::write_text_file(place.work / kJournal, json_encode(journal), {options.durable, true}, ops);
  ops.reached("journal written");
  try {
    for (const auto& [from, to] : renames) {
      if (ops.rename_new((place.work / from).c_str(), (place.work / to).c_str()) != 0) {
        throw io::io_error(errno, "cannot give the data file its name", (place.work / to).native());
      }
      ops.reached("data renamed");
    }
    for (const auto& [name, text] : json) {
      if (name == kRecisIndex) ops.reached("before index");
      io::write_text_file(place.work / name, text, {options.durable, false}, ops);
    }
  } catch (...) {
    // The other shards' files get their old names back, so that shard 0 may try again. Should that fail too, the
    // journal stays for the next save.
    if (!io::is_there(place.work / kRecisIndex)) {
      for (const auto& [name, text] : json) ops.unlink((place.work / name).c_str());
      bool undone = true;
      for (const auto& [from, to] : renames) {
        ops.rename_new((place.work / to).c_str(), (place.work / from).c_str());
        undone &= !io::is_there(place.work / to);
      }
      if (undone) ops.unlink((place.work / kJournal).c_str());
    }
    throw;
  }
  ops.reached("index written");
  ops.unlink((place.work / kJournal).c_str());
}

void swap(const SavePlace& place, std::string_view attempt, const SaveOptions& options, io::FileOps& ops) {
  // Nothing of the save itself shall be in the new directory, which nobody cleans up while it is a good checkpoint.
  remove_attempt(place.work, attempt, ops);
  if (options.durable) sync(place.work, ops);
  ops.reached("before swap");
  if (ops.exchange(place.work.c_str(), place.target.c_str()) != 0) {
    throw io::io_error(errno,
                       "cannot exchange the old checkpoint for the new one in '" + place.work.native() +
                           "'; save to a directory of its own that can be renamed",
                       place.target.native());
  }
  if (options.durable) sync(place.target.parent_path(), ops);
  ops.reached("swapped");
  retire_directory(place.work, place.target, ops);
}

}  // namespace

std::filesystem::path prepare_directory(const std::filesystem::path& path, bool durable, io::FileOps& ops) {
  std::error_code error;
  std::vector<std::filesystem::path> missing;
  for (std::filesystem::path at = std::filesystem::absolute(path, error);
       !error && at.has_relative_path() && !std::filesystem::exists(at, error); at = at.parent_path()) {
    missing.push_back(at);
  }
  std::filesystem::create_directories(path, error);
  std::error_code unknown;
  if (!std::filesystem::is_directory(path, unknown)) {
    throw io::io_error(error ? error.value() : ENOTDIR, "cannot create the directory of the checkpoint", path.native());
  }
  const std::filesystem::path absolute = std::filesystem::canonical(path, error);
  if (error) throw io::io_error(error.value(), "cannot find the directory of the checkpoint", path.native());
  if (durable) {
    for (const std::filesystem::path& made : missing) sync(made.parent_path(), ops);
  }
  return absolute;
}

void refuse_existing(const std::filesystem::path& directory, const SaveOptions& options, io::FileOps& ops) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kConflict, what).in_file(directory.native()).with_errno(EEXIST);
  };
  const bool has_recis = io::is_there(directory / kRecisIndex);
  if (options.layout == CheckpointLayout::kPlain) {
    if (has_recis) refuse("holds a checkpoint of the recis layout; save to another directory, or remove it first");
    if (io::is_there(directory / kPlainIndex) && !options.overwrite && !is_own_index(directory / kPlainIndex, ops)) {
      refuse("holds a set of shards that Saver did not write; save to another directory, or allow overwriting");
    }
    return;
  }
  if (!options.overwrite && (has_recis || io::is_there(directory / kPlainIndex))) {
    refuse("holds a checkpoint; save to another directory, or allow overwriting");
  }
  std::error_code nowhere;
  if (options.overwrite && std::filesystem::current_path(nowhere) == directory) {
    refuse("is the current directory, which cannot be exchanged for another; save to a directory of its own");
  }
}

SavePlace place_of(const std::filesystem::path& target, const SaveOptions& options, std::string_view attempt) {
  const bool beside = options.layout == CheckpointLayout::kRecis && options.overwrite;
  return {target, beside ? building_site(target, attempt) : target};
}

void wait_for_earlier_part(const std::filesystem::path& target, const ShardRecord& own,
                           std::chrono::milliseconds timeout, const std::function<void()>& watch, io::FileOps& ops) {
  const auto deadline = ops.now() + timeout;
  PollInterval interval;
  while (true) {
    const bool late = ops.now() >= deadline;
    const auto earlier = earlier_part(target, own, ops);
    if (!earlier) return;
    if (watch) watch();
    if (late) {
      throw Error(ErrorCode::kIo, "shard 0 has not ended the save '" + printable(*earlier) +
                                      "', to which this shard has given its part, within " +
                                      std::to_string(timeout.count()) +
                                      " ms; run shard 0, or pass another `run` when that save will never end")
          .in_file(target.native())
          .with_errno(ETIMEDOUT);
    }
    ops.pause(interval.next());
  }
}

std::vector<ShardRecord> collect_records(const SavePlace& place, const ShardRecord& own,
                                         std::chrono::milliseconds timeout, const std::function<void()>& watch,
                                         io::FileOps& ops) {
  std::vector<ShardRecord> records(own.shard_num);
  std::map<std::uint64_t, std::string> missing;  // shard, and what is known about it
  for (std::uint64_t shard = 0; shard < own.shard_num; ++shard) missing.emplace(shard, "no record of it");
  const auto deadline = ops.now() + timeout;
  PollInterval interval;
  while (true) {
    // Before the look, so that a record that came in time is seen.
    const bool late = ops.now() >= deadline;
    for (auto it = missing.begin(); it != missing.end();) {
      check_told_failure(place, it->first, own, ops);
      const std::filesystem::path path = place.work / record_name(own.attempt, it->first);
      if (io::is_there(path)) {
        ShardRecord& record = records[it->first];
        it->second = read_record(path, record, it->first, own, ops);
        if (it->second.empty()) check_failure(record, path, place, ops);
        if (it->second.empty()) it->second = problem_of(record, place.work, ops);
        if (it->second.empty()) {
          it = missing.erase(it);
          continue;
        }
      }
      ++it;
    }
    if (missing.empty()) return records;
    if (watch) watch();
    if (late) break;
    ops.pause(interval.next());
  }
  std::string who;
  for (const auto& [shard, why] : missing) {
    who += (who.empty() ? "" : "; ") + std::string("shard ") + std::to_string(shard) + ": " + why;
  }
  throw Error(ErrorCode::kIo, std::to_string(missing.size()) + " of " + std::to_string(own.shard_num) +
                                  " shards did not save their part within " + std::to_string(timeout.count()) +
                                  " ms (" + who + ")")
      .in_file(place.target.native())
      .with_errno(ETIMEDOUT);
}

void commit(const SavePlace& place, std::span<const ShardRecord> records, const SaveOptions& options,
            io::FileOps& ops) {
  check_parts(records);
  if (options.layout == CheckpointLayout::kPlain) {
    commit_plain(place, records, options, ops);
  } else {
    commit_recis(place, records, options, ops);
    if (place.swaps()) swap(place, records.front().attempt, options, ops);
  }
  remove_attempt(place.target, records.front().attempt, ops);
  ops.reached("cleaned");
}

}  // namespace weightstore::checkpoint
