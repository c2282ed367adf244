#pragma once

// The two layouts: how files are called, and the JSON that makes a set of them a checkpoint.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sharded/shard_record.h"

namespace weightstore::sharded {

inline constexpr const char* kPlainIndex = "model.safetensors.index.json";
inline constexpr const char* kRecisIndex = "index";
inline constexpr const char* kRecisKeys = "tensorkey.json";
inline constexpr const char* kRecisDescription = "torch_rank_weights_embs_table_multi_shard.json";

// The text of model.safetensors.index.json. `records` are those of all shards, in order, and passed
// check_parts().
std::string plain_index(std::span<const ShardRecord> records);

// A column's name in a file of the plain layout, without its slice: "user.embedding".
std::string plain_key(std::string_view table, std::string_view slot);
// "0-1024-65536", which follows behind a slash; and back, nullopt for anything else.
std::string slice_key(const BucketRange& slice);
std::optional<BucketRange> slice_from_key(std::string_view text);

// "model-000002-of-000004.safetensors".
std::string recis_file_name(const ShardRecord& record, const RecordedFile& file);

// The three JSON files, the index last.
std::vector<std::pair<std::string, std::string>> recis_json(std::span<const ShardRecord> records);

}  // namespace weightstore::sharded
