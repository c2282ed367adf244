// A Hugging Face set of shards whose files may be called anything, so that those of one save never meet those of
// another. docs/saver.md describes what the index says about tables.

#include <algorithm>
#include <map>
#include <utility>

#include "base/metadata_keys.h"
#include "checkpoint/block_plan.h"
#include "checkpoint/layouts.h"
#include "codec/json.h"
#include "file/boxes/chunk_entry.h"
#include "file/bucket_range_text.h"
#include "file/table_entry.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

constexpr std::uint64_t kDefaultMaxBlockBytes = 1u << 20;  // below this a block is not worth its entry in the index
constexpr std::uint64_t kFileBytes = 1u << 20;             // below this a file is not worth opening

std::string key_of(const WriteBlock& block, const BucketRange& buckets) {
  if (block.kind() == BlockKind::kDense) return block.tensor_name();
  if (block.kind() == BlockKind::kChunk) return chunk_key(block.tensor_name(), block.begin());
  return plain_key(block.table(), block.slot()) + "/" + bucket_range_key(buckets);
}

}  // namespace

// Largest first onto the file that has least: no file ends up larger than the mean and one block.
std::vector<PlannedFile> plan_plain(std::span<const WriteBlock> blocks, const ShardPosition& shard,
                                    std::uint64_t max_block_bytes) {
  std::vector<PlannedBlock> planned;
  std::uint64_t total = 0;
  for (const WriteBlock& block : blocks) {
    for (PlannedBlock& piece : cut(block, max_block_bytes == 0 ? kDefaultMaxBlockBytes : max_block_bytes)) {
      piece.key = key_of(block, piece.buckets);
      total += piece.nbytes;
      planned.push_back(std::move(piece));
    }
  }
  check_names(planned);
  std::sort(planned.begin(), planned.end(), [](const PlannedBlock& a, const PlannedBlock& b) {
    return a.nbytes != b.nbytes ? a.nbytes > b.nbytes : a.key < b.key;
  });
  const std::uint64_t worthwhile = std::max<std::uint64_t>(1, total / kFileBytes);
  const std::uint64_t count = std::min<std::uint64_t>({shard.parallel, planned.size(), worthwhile});
  std::vector<PlannedFile> files(count);
  for (std::uint64_t i = 0; i < count; ++i) files[i].number = i;
  for (PlannedBlock& piece : planned) {
    PlannedFile& file = *std::min_element(
        files.begin(), files.end(), [](const PlannedFile& a, const PlannedFile& b) { return a.nbytes < b.nbytes; });
    file.nbytes += piece.nbytes;
    file.blocks.push_back(std::move(piece));
  }
  // Blocks of no bytes may all have gone to one file.
  std::erase_if(files, [](const PlannedFile& file) { return file.blocks.empty(); });
  return files;
}

std::string plain_index(std::span<const ShardRecord> records) {
  std::map<std::string_view, std::string_view> weight_map;
  TableDescriptions tables;
  ChunkDescriptions chunks;
  std::uint64_t total = 0;
  Value::Map files;
  for (const ShardRecord& record : records) {
    for (const RecordedFile& file : record.files) {
      files.emplace_back(file.name, file.bytes);
      for (const RecordedBlock& block : file.blocks) {
        weight_map.emplace(block.key, file.name);
        total += block.end - block.begin;
        if (block.kind == BlockKind::kChunk) chunks.add(block.name, block.whole, block.chunk_begin);
        if (block.is_column()) tables.add(block.table, block.slot, block.buckets);
      }
    }
  }
  Value::Map ours = {{"version", kPlainVersion},
                     {"attempt", records.empty() ? std::string() : records.front().attempt},
                     {"shard_num", std::uint64_t{records.size()}},
                     {"files", std::move(files)},
                     {"tables", tables.value()}};
  if (!chunks.empty()) ours.emplace_back("chunked", chunks.value());
  std::string json = "{\n  \"metadata\": {\n    \"format\": \"pt\",\n    \"total_size\": " + std::to_string(total) +
                     ",\n    \"" + std::string(kTablesKey) + "\": " + json_encode(std::move(ours)) +
                     "\n  },\n  \"weight_map\": {";
  const char* separator = "\n    ";
  for (const auto& [key, file] : weight_map) {
    json += std::exchange(separator, ",\n    ");
    append_json_string(json, key);
    json += ": ";
    append_json_string(json, file);
  }
  json += weight_map.empty() ? "}\n}\n" : "\n  }\n}\n";
  return json;
}

}  // namespace weightstore::checkpoint
