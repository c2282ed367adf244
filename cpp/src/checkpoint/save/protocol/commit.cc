#include "checkpoint/save/protocol/commit.h"

#include <cerrno>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/layouts.h"
#include "checkpoint/save/protocol/check_records.h"
#include "checkpoint/save/protocol/checkpoint_directory.h"
#include "checkpoint/save/protocol/stale_files.h"
#include "checkpoint/save_names.h"
#include "codec/json.h"
#include "io/checked_io.h"
#include "io/paths.h"
#include "io/text_file.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

void commit_plain(const SaveDirectories& directories, std::span<const ShardRecord> records, const SaveOptions& options,
                  io::FileOps& ops) {
  const std::string index = plain_index(records);
  std::set<std::string> replaced = checkpoint_files(directories.target, ops).value_or(std::set<std::string>());
  ops.reached("records merged");
  io::write_text_file(directories.target / kPlainIndex, index, {options.durable, true}, ops);
  ops.reached("index written");
  replaced.erase(kPlainIndex);
  for (const ShardRecord& record : records) {
    for (const RecordedFile& file : record.files) replaced.erase(file.name);
  }
  for (const std::string& name : replaced) ops.unlink((directories.target / name).c_str());
}

// The commit of the recis layout in the work directory: renames data files, then writes the JSON files, the index last.
class RecisCommit {
 public:
  RecisCommit(const std::filesystem::path& work, std::span<const ShardRecord> records, const SaveOptions& options,
              io::FileOps& ops)
      : work_(work), json_(recis_json(records)), options_(options), ops_(ops) {
    for (const ShardRecord& record : records) {
      for (const RecordedFile& file : record.files) renames_.emplace(file.name, recis_file_name(record, file));
    }
  }

  void run() {
    write_journal();
    try {
      rename_data_files();
      write_json();
    } catch (...) {
      undo();
      throw;
    }
    ops_.reached("index written");
    unlink(kJournal);
  }

 private:
  void write_journal() {
    Value::List names;
    for (const auto& [from, to] : renames_) names.push_back(to);
    for (const auto& [name, text] : json_) names.push_back(name);
    // A failed commit removes the files that the journal names: they must not exist before.
    for (const Value& name : names) {
      const std::filesystem::path path = work_ / *name.get_if<std::string>();
      if (!io::is_there(path, ops_)) continue;
      throw Error(ErrorCode::kConflict, "the file exists, and is no part of a checkpoint; move it away")
          .in_file(path.native())
          .equivalent_errno(EEXIST);
    }
    ops_.reached("records merged");
    io::write_text_file(work_ / kJournal, json_encode(names), {options_.durable, true}, ops_);
    ops_.reached("journal written");
  }

  void rename_data_files() {
    for (const auto& [from, to] : renames_) {
      if (ops_.rename_new((work_ / from).c_str(), (work_ / to).c_str()) != 0) {
        throw io::io_error(errno, "cannot give the data file its name", (work_ / to).native());
      }
      ops_.reached("data renamed");
    }
  }

  void write_json() {
    for (const auto& [name, text] : json_) {
      if (name == kRecisIndex) ops_.reached("before index");
      io::write_text_file(work_ / name, text, {options_.durable, false}, ops_);
    }
  }

  // Gives the data files their old names back, so that shard 0 may try again. If this fails too, the journal stays, and
  // the next save cleans up.
  void undo() noexcept try {
    if (io::is_there(work_ / kRecisIndex, ops_)) return;  // the commit came through
    for (const auto& [name, text] : json_) unlink(name);
    bool undone = true;
    for (const auto& [from, to] : renames_) {
      ops_.rename_new((work_ / to).c_str(), (work_ / from).c_str());
      undone &= !io::is_there(work_ / to, ops_);
    }
    if (undone) unlink(kJournal);
  } catch (...) {
  }

  void unlink(const std::string& name) { ops_.unlink((work_ / name).c_str()); }

  const std::filesystem::path& work_;
  std::map<std::string, std::string> renames_;  // from the name in the record to the final name
  const std::vector<std::pair<std::string, std::string>> json_;
  const SaveOptions& options_;
  io::FileOps& ops_;
};

// Exchanges the staging directory for the target.
void exchange_directories(const SaveDirectories& directories, std::string_view attempt, const SaveOptions& options,
                          io::FileOps& ops) {
  const auto& [target, work] = directories;
  // No later save would clean up the new directory while its checkpoint is good: so no file of this save stays in it.
  remove_attempt_files(work, attempt, ops);
  if (options.durable) sync_names(work, ops);
  ops.reached("before swap");
  if (ops.exchange(work.c_str(), target.c_str()) != 0) {
    throw io::io_error(errno,
                       "cannot exchange the old checkpoint for the new one in '" + work.native() +
                           "'; save to a directory of its own that can be renamed",
                       target.native());
  }
  if (options.durable) sync_names(target.parent_path(), ops);
  ops.reached("swapped");
  retire_directory(work, target, ops);
}

}  // namespace

void commit(const SaveDirectories& directories, std::span<const ShardRecord> records, const SaveOptions& options,
            io::FileOps& ops) {
  check_records(records);
  if (options.layout == CheckpointLayout::kPlain) {
    commit_plain(directories, records, options, ops);
  } else {
    RecisCommit(directories.work, records, options, ops).run();
    if (directories.is_staged()) exchange_directories(directories, records.front().attempt, options, ops);
  }
  remove_attempt_files(directories.target, records.front().attempt, ops);
  ops.reached("cleaned");
}

}  // namespace weightstore::checkpoint
