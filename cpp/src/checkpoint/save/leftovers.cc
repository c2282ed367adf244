#include "checkpoint/save/leftovers.h"

#include <cerrno>

#include "checkpoint/attempt.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/layouts.h"
#include "checkpoint/shard_record.h"
#include "codec/json.h"
#include "io/atomic_file.h"
#include "io/text_file.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"

namespace weightstore::checkpoint {
namespace {

constexpr std::string_view kSiteSuffix = ".weightstore-save";

std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().native());
  }
  return names;
}

// Hidden files are never part of a checkpoint; of others that is known only when its index is.
bool may_go(const std::string& name, const std::optional<std::set<std::string>>& needed) {
  return name.starts_with(kHiddenPrefix) || (needed && !needed->contains(name));
}

// The files that a commit which did not come to its end was about to give their names.
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

void unlink_in(const std::filesystem::path& directory, const std::string& name, io::FileOps& ops) {
  ops.unlink((directory / name).c_str());
}

void undo_journal(const std::filesystem::path& directory, io::FileOps& ops) {
  for (const std::string& name : journaled_files(directory, ops)) unlink_in(directory, name, ops);
  unlink_in(directory, kJournal, ops);
}

// No attempt has a '~': sites of directories whose names begin alike are told apart.
std::string site_prefix(const std::filesystem::path& directory) { return "." + directory.filename().native() + "~"; }

bool is_site_of(std::string_view name, const std::filesystem::path& directory) {
  const std::string prefix = site_prefix(directory);
  if (!name.starts_with(prefix) || !name.ends_with(kSiteSuffix)) return false;
  name.remove_suffix(kSiteSuffix.size());
  return name.size() > prefix.size() && is_attempt(name.substr(prefix.size()));
}

// Makes a building site ready for another try: a checkpoint there is one that never came to its place, or that has left
// it, and so are a lock and a token. Records and data files of the other shards stay.
void clear_site(const std::filesystem::path& site, io::FileOps& ops) {
  undo_journal(site, ops);
  io::remove_stale_temporaries(site.native(), ops);
  const auto files = checkpoint_files(site, ops);
  if (!files) return;
  // Its index first: what is left of it then is plainly no checkpoint.
  for (const char* index : {kRecisIndex, kPlainIndex}) unlink_in(site, index, ops);
  for (const std::string& name : *files) unlink_in(site, name, ops);
  for (const std::string& name : names_in(site)) {
    if (attempt_of_name(name) == std::string()) unlink_in(site, name, ops);
  }
}

}  // namespace

std::optional<std::set<std::string>> checkpoint_files(const std::filesystem::path& directory, io::FileOps& ops) {
  std::set<std::string> files;
  try {
    if (io::is_there(directory / kPlainIndex)) {
      const std::string text = io::read_text_file(directory / kPlainIndex, kMaxIndexBytes, ops);
      files.insert(kPlainIndex);
      const TextMap map = safetensors::parse_index(text).weight_map;
      for (std::size_t i = 0; i < map.size(); ++i) files.emplace(map.value(i));
    }
    if (io::is_there(directory / kRecisIndex)) {
      const Value index = json_decode(io::read_text_file(directory / kRecisIndex, kMaxIndexBytes, ops));
      files.insert({kRecisIndex, kRecisKeys, kRecisDescription});
      const auto* named = field(index, "file_index").get_if<Value::Map>();
      if (named == nullptr) return std::nullopt;
      for (const auto& [key, number] : *named) {
        // From a file that anybody may have written: nothing outside of the directory is meant.
        const std::string& name = *key.get_if<std::string>();
        if (name.find('/') == std::string::npos) files.insert(name);
      }
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  return files;
}

std::vector<std::filesystem::path> places_of_saves(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> places = {directory};
  for (const std::string& name : names_in(directory.parent_path())) {
    if (is_site_of(name, directory)) places.push_back(directory.parent_path() / name);
  }
  return places;
}

std::map<std::string, std::filesystem::path> records_of_shard(const std::filesystem::path& place, std::uint64_t shard) {
  std::map<std::string, std::filesystem::path> records;
  for (const std::string& name : names_in(place)) {
    const auto attempt = attempt_of_name(name);
    if (attempt && name == record_name(*attempt, shard)) records.emplace(*attempt, place / name);
  }
  return records;
}

std::filesystem::path building_site(const std::filesystem::path& directory, std::string_view attempt) {
  return directory.parent_path() / (site_prefix(directory) + std::string(attempt) + std::string(kSiteSuffix));
}

void remove_attempt(const std::filesystem::path& directory, std::string_view attempt, io::FileOps& ops) noexcept {
  try {
    const auto needed = checkpoint_files(directory, ops);
    for (const std::string& name : names_in(directory)) {
      const auto owner = attempt_of_name(name);
      if (owner && !owner->empty() && *owner == attempt && may_go(name, needed)) unlink_in(directory, name, ops);
    }
  } catch (...) {
  }
}

void remove_leftovers(const std::filesystem::path& directory, std::string_view attempt, io::FileOps& ops) {
  const auto needed = checkpoint_files(directory, ops);
  if (!io::is_there(directory / kRecisIndex)) undo_journal(directory, ops);
  io::remove_stale_temporaries(directory.native(), ops);
  for (const std::string& name : names_in(directory)) {
    const auto owner = attempt_of_name(name);
    // The caller holds the lock.
    if (!owner || name == kLock || (!owner->empty() && *owner == attempt)) continue;
    if (may_go(name, needed)) unlink_in(directory, name, ops);
  }
  const std::filesystem::path ours = building_site(directory, attempt);
  clear_site(ours, ops);
  for (const std::string& name : names_in(directory.parent_path())) {
    if (is_site_of(name, directory) && name != ours.filename()) {
      retire_directory(directory.parent_path() / name, directory, ops);
    }
  }
}

void retire_directory(const std::filesystem::path& directory, const std::filesystem::path& heir, io::FileOps& ops) {
  // Of a checkpoint whose index cannot be read nothing is known to be ours: it stays, as far as its names are free.
  std::set<std::string> ours = checkpoint_files(directory, ops).value_or(std::set<std::string>());
  ours.merge(journaled_files(directory, ops));
  ours.insert({kPlainIndex, kRecisIndex, kRecisKeys, kRecisDescription});
  io::remove_stale_temporaries(directory.native(), ops);
  for (const std::string& name : names_in(directory)) {
    const bool is_ours = ours.contains(name) || attempt_of_name(name);
    const bool moved = !is_ours && ops.rename_new((directory / name).c_str(), (heir / name).c_str()) == 0;
    // What has a name that the new checkpoint needed is replaced.
    if (is_ours || (!moved && errno == EEXIST)) unlink_in(directory, name, ops);
  }
  ops.rmdir(directory.c_str());
}

}  // namespace weightstore::checkpoint
