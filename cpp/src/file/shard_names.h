#pragma once

// The names of a set of shards. `stem` is what comes before ".safetensors.index.json" in the name of the index.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace weightstore {

inline constexpr std::string_view kIndexSuffix = ".safetensors.index.json";
inline constexpr std::size_t kSetIdDigits = 8;

// `<stem>-00001-of-00003.safetensors`: the name that other tools expect, for a set that replaces no other.
std::string usual_shard_name(const std::string& stem, std::size_t number, std::size_t count);

// `<stem>-<id>-00001-of-00003.safetensors`: a name that no other set has. The id is kSetIdDigits hexadecimal digits.
std::string fresh_shard_name(const std::string& stem, const std::string& id, std::size_t number, std::size_t count);

// Throws Error(kInvalidArgument) when the names of a set of `count` shards would be longer than a file system allows.
// Everything else that a save puts beside the shards has a shorter name than a fresh shard.
void check_stem(const std::string& stem, std::size_t count);

// Whether usual_shard_name() or fresh_shard_name() gives the name.
bool is_shard_name(const std::string& stem, std::string_view name);

// What the names of all shards of a set have in common.
struct SetName {
  std::string stem;
  std::size_t count = 0;
  bool operator==(const SetName&) const = default;
};

// The set of a shard, given the name that usual_shard_name() or fresh_shard_name() gave it; nullopt for other names. An
// id counts as part of the stem.
std::optional<SetName> set_of_shard(std::string_view name);

}  // namespace weightstore
