#pragma once

// What saves that came before have left, and what of it may go.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_ops.h"

namespace weightstore::checkpoint {

// Removes what dead attempts left in and beside `directory`; files of `attempt` stay, and so does whatever the
// checkpoint in the directory is made of. The caller holds the directory's lock. Failures are passed over: leftovers
// are an annoyance, not an error.
void remove_leftovers(const std::filesystem::path& directory, std::string_view attempt, io::FileOps& ops);

// Removes what `attempt` has in `directory`, except for what the checkpoint there is made of.
void remove_attempt(const std::filesystem::path& directory, std::string_view attempt, io::FileOps& ops) noexcept;

// Files of the checkpoint, of either layout, that `directory` holds: indexes and what they name. nullopt when there is
// an index that cannot be read: then any file may be one of them.
std::optional<std::set<std::string>> checkpoint_files(const std::filesystem::path& directory, io::FileOps& ops);

// Empties and removes a directory that was, or was to become, the checkpoint in `heir`: what is not part of a
// checkpoint or of a save is somebody else's, and moves there.
void retire_directory(const std::filesystem::path& directory, const std::filesystem::path& heir, io::FileOps& ops);

// The directories in which a save into `directory` may have its files: the directory itself, and building sites.
std::vector<std::filesystem::path> places_of_saves(const std::filesystem::path& directory);

// The records of this shard in one of those places, by attempt.
std::map<std::string, std::filesystem::path> records_of_shard(const std::filesystem::path& place, std::uint64_t shard);

// ".<name>~<attempt>.weightstore-save" beside `directory`: where a checkpoint is built that will be swapped with it.
std::filesystem::path building_site(const std::filesystem::path& directory, std::string_view attempt);

}  // namespace weightstore::checkpoint
