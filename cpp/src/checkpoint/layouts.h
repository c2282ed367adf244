#pragma once

// The JSON files of the two checkpoint layouts, and the names of their files. block_plan.h declares how each layout
// cuts tables into blocks.

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

// The text of model.safetensors.index.json. `records` are those of all shards, in order; check_records() has checked
// them.
std::string plain_index(std::span<const ShardRecord> records);

// The final name of a data file, such as "model-000002-of-000004.safetensors".
std::string recis_file_name(const ShardRecord& record, const RecordedFile& file);

// The names and texts of the three JSON files, the index last. `records` as above. Throws Error(kConflict) when the
// shards have different values of `parallel`, which the file names depend on.
std::vector<std::pair<std::string, std::string>> recis_json(std::span<const ShardRecord> records);

}  // namespace weightstore::checkpoint
