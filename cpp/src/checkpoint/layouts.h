#pragma once

// The two layouts: how files are called, and the JSON that makes a set of them a checkpoint.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/shard_record.h"
#include "file/table_entry.h"

namespace weightstore::checkpoint {

inline constexpr const char* kPlainIndex = "model.safetensors.index.json";
inline constexpr const char* kRecisIndex = "index";
inline constexpr const char* kRecisKeys = "tensorkey.json";
inline constexpr const char* kRecisDescription = "torch_rank_weights_embs_table_multi_shard.json";

// The text of model.safetensors.index.json. `records` are those of all shards, in order, and passed
// check_parts().
std::string plain_index(std::span<const ShardRecord> records);

// "model-000002-of-000004.safetensors".
std::string recis_file_name(const ShardRecord& record, const RecordedFile& file);

// The three JSON files, the index last.
std::vector<std::pair<std::string, std::string>> recis_json(std::span<const ShardRecord> records);

}  // namespace weightstore::checkpoint
