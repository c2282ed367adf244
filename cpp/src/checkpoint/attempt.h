#pragma once

// The id of a save, and the names of the files that a save has in the directory until it is committed.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace weightstore::checkpoint {

// True for 1 to 64 letters, digits, '-', '_' and '.'.
bool is_attempt(std::string_view text);
// Throws Error(kInvalidArgument) unless it is one.
void check_attempt(std::string_view attempt);
// Throws Error(kInvalidArgument) unless the run can be told in a token.
void check_run(std::string_view run);

// ".weightstore-save.<rest>": everything a save puts beside a checkpoint begins like this.
std::string protocol_name(const std::string& rest);
// ".weightstore-save.<attempt>-s00001.json"
std::string record_name(std::string_view attempt, std::uint64_t shard);
// The names that shard 0 will give to data files, written before it renames the first: see commit.cc.
inline constexpr const char* kJournal = ".weightstore-save.journal";
// Held by shard 0 during a save, so that a second save is refused.
inline constexpr const char* kLock = ".weightstore-save.lock";
// What shard 0 tells the other shards: see session.cc.
inline constexpr const char* kToken = ".weightstore-save.token";

// Data files of one try: "<prefix><attempt>[~<n>]-s00001-f00002.safetensors". The number behind '~' tells tries under
// the same id apart, so that no file is ever overwritten.
std::string data_name(std::string_view prefix, std::string_view attempt, unsigned attempt_try, std::uint64_t shard,
                      std::uint64_t file);
inline constexpr const char* kPlainPrefix = "model-";
inline constexpr const char* kHiddenPrefix = ".weightstore-save.";
// The attempt of a file that data_name(), record_name() or a lock or token named; nullopt for all others' files. Empty
// for those that belong to no attempt.
std::optional<std::string> attempt_of_name(std::string_view file_name);

// The first try under which this shard has no files in `directory` yet.
unsigned next_try(const std::filesystem::path& directory, std::string_view prefix, std::string_view attempt,
                  std::uint64_t shard);

}  // namespace weightstore::checkpoint
