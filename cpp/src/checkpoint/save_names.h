#pragma once

// The attempt, which names a save, and the names of the files that a save has in the directory until it is committed.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "io/file_ops.h"

namespace weightstore::checkpoint {

inline constexpr std::size_t kMaxAttempt = 64;

// True for 1 to kMaxAttempt letters, digits, '-', '_' and '.'.
bool is_attempt(std::string_view text);
// Throws Error(kInvalidArgument) when is_attempt() is false.
void check_attempt(std::string_view attempt);
// Throws Error(kInvalidArgument) for a run that does not fit into a token: at most one line of 256 bytes.
void check_run(std::string_view run);

// ".weightstore-save.<rest>": the names of all files that a save writes, except for data files of the plain layout,
// begin like this.
std::string protocol_name(const std::string& rest);
// ".weightstore-save.<attempt>-s00001.json"
std::string record_name(std::string_view attempt, std::uint64_t shard);
// The final names that shard 0 gives to data files, written before it renames the first one.
inline constexpr const char* kJournal = ".weightstore-save.journal";
// The lease that shard 0 holds during a save, so that a second save is refused.
inline constexpr const char* kLock = ".weightstore-save.lock";
// The lease in which shard 0 tells the other shards about its save.
inline constexpr const char* kToken = ".weightstore-save.token";

// True for a name that a data file can have in its directory. Anybody may have written an index: a name with a slash
// leads out of the directory, and a name with another ending is no data file.
bool is_data_name(std::string_view name);
// The data files of one try: "<prefix><attempt>[~<n>]-s00001-f00002.safetensors". The number after '~' distinguishes
// tries under the same attempt, so that no file is ever overwritten.
std::string data_name(std::string_view prefix, std::string_view attempt, unsigned attempt_try, std::uint64_t shard,
                      std::uint64_t file);
inline constexpr const char* kPlainPrefix = "model-";
inline constexpr const char* kHiddenPrefix = ".weightstore-save.";
// The attempt of a file that a save has named; empty for a lock, token or journal, which belong to no attempt. nullopt
// for all other files.
std::optional<std::string> attempt_of_name(std::string_view file_name);

// The number of the first try of which this shard has no files in `directory`.
unsigned next_try(const std::filesystem::path& directory, std::string_view prefix, std::string_view attempt,
                  std::uint64_t shard, io::FileOps& ops);

}  // namespace weightstore::checkpoint
