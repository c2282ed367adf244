#include "checkpoint/save/protocol/stale_files.h"

#include <cerrno>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/layouts.h"
#include "checkpoint/save/protocol/staging_directory.h"
#include "checkpoint/save_names.h"
#include "codec/json.h"
#include "io/paths.h"
#include "io/temporaries.h"
#include "io/text_file.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

// A hidden file of a save never belongs to a checkpoint. Of other files this is known only if the index was read.
bool is_removable(const std::string& name, const std::optional<std::set<std::string>>& needed) {
  return name.starts_with(kHiddenPrefix) || (needed && !needed->contains(name));
}

// The final names that an unfinished commit was giving to its files.
std::set<std::string> journaled_files(const std::filesystem::path& directory, io::FileOps& ops) {
  std::set<std::string> files;
  try {
    const Value journal = json_decode(io::read_text_file(directory / kJournal, kMaxIndexBytes, ops));
    const auto* list = journal.get_if<Value::List>();
    for (const Value& item : list != nullptr ? *list : Value::List()) {
      const auto* name = item.get_if<std::string>();
      if (name != nullptr && name->find('/') == std::string::npos) files.insert(*name);
    }
  } catch (const Error&) {
  }
  return files;
}

// None when the directory cannot be listed: then the stale files stay until the next save.
std::vector<std::string> names_in(const std::filesystem::path& directory, io::FileOps& ops) {
  try {
    return io::list_directory(directory, ops);
  } catch (const Error&) {
    return {};
  }
}

void unlink_in(const std::filesystem::path& directory, const std::string& name, io::FileOps& ops) {
  ops.unlink((directory / name).c_str());
}

void remove_journaled_files(const std::filesystem::path& directory, io::FileOps& ops) {
  for (const std::string& name : journaled_files(directory, ops)) unlink_in(directory, name, ops);
  unlink_in(directory, kJournal, ops);
}

// Makes the staging directory of this attempt ready for another try. A checkpoint in it was never exchanged for the
// target, or has been exchanged for a newer one; a lock or token in it came with an exchange. Records and data files of
// the other shards stay.
void clear_staging_directory(const std::filesystem::path& staging, io::FileOps& ops) {
  remove_journaled_files(staging, ops);
  io::remove_stale_temporaries(staging.native(), ops);
  const auto files = checkpoint_files(staging, ops);
  if (!files) return;
  // The indexes first: without them the rest is no checkpoint.
  for (const char* index : {kRecisIndex, kPlainIndex}) unlink_in(staging, index, ops);
  for (const std::string& name : *files) unlink_in(staging, name, ops);
  for (const std::string& name : names_in(staging, ops)) {
    if (attempt_of_name(name) == std::string()) unlink_in(staging, name, ops);
  }
}

}  // namespace

void remove_attempt_files(const std::filesystem::path& directory, std::string_view attempt, io::FileOps& ops) noexcept {
  try {
    const auto needed = checkpoint_files(directory, ops);
    for (const std::string& name : names_in(directory, ops)) {
      const auto owner = attempt_of_name(name);
      if (owner && !owner->empty() && *owner == attempt && is_removable(name, needed)) unlink_in(directory, name, ops);
    }
  } catch (...) {
  }
}

void remove_stale_files(const std::filesystem::path& target, std::string_view attempt, io::FileOps& ops) {
  const auto needed = checkpoint_files(target, ops);
  if (!io::is_there(target / kRecisIndex, ops)) remove_journaled_files(target, ops);
  io::remove_stale_temporaries(target.native(), ops);
  for (const std::string& name : names_in(target, ops)) {
    const auto owner = attempt_of_name(name);
    // The caller holds the lock.
    if (!owner || name == kLock || (!owner->empty() && *owner == attempt)) continue;
    if (is_removable(name, needed)) unlink_in(target, name, ops);
  }
  const std::filesystem::path own = staging_directory(target, attempt);
  clear_staging_directory(own, ops);
  for (const std::filesystem::path& directory : directories_of_all_saves(target, ops)) {
    if (directory != target && directory != own) retire_directory(directory, target, ops);
  }
}

void retire_directory(const std::filesystem::path& directory, const std::filesystem::path& successor,
                      io::FileOps& ops) {
  // If the index cannot be read, the data files that it names count as somebody else's and are moved.
  std::set<std::string> ours = checkpoint_files(directory, ops).value_or(std::set<std::string>());
  ours.merge(journaled_files(directory, ops));
  ours.insert({kPlainIndex, kRecisIndex, kRecisKeys, kRecisDescription});
  io::remove_stale_temporaries(directory.native(), ops);
  for (const std::string& name : names_in(directory, ops)) {
    const bool is_ours = ours.contains(name) || attempt_of_name(name);
    const bool moved = !is_ours && ops.rename_new((directory / name).c_str(), (successor / name).c_str()) == 0;
    // The new checkpoint has a file of this name, which replaces the old one.
    if (is_ours || (!moved && errno == EEXIST)) unlink_in(directory, name, ops);
  }
  ops.rmdir(directory.c_str());
}

}  // namespace weightstore::checkpoint
