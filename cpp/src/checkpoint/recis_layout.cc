// The files of RecIS 1.0, as docs/saver.md describes them.

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <utility>

#include "checkpoint/block_plan.h"
#include "checkpoint/layouts.h"
#include "codec/json.h"
#include "file/bucket_range_text.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

// Parts of one column in one shard; more than a table has stripes.
constexpr std::uint64_t kMaxParts = 65'536;

// "user@embedding" in shard 0 of 2: "user.embedding/part_0_2". Parts of a cut column are numbered so that those of all
// shards differ.
std::string sparse_key(const WriteBlock& block, const ShardPosition& shard, std::uint64_t part, std::uint64_t parts) {
  std::string key = block.tensor_name();
  std::replace(key.begin(), key.end(), '@', '.');
  const std::uint64_t scale = parts == 1 ? 1 : kMaxParts;
  return key + "/part_" + std::to_string(shard.index * scale + part) + "_" + std::to_string(shard.count * scale);
}

struct RecisType {
  DType dtype;
  std::string_view long_name;
};

// The types that RecIS reads, and the names that its description gives them: torch's.
constexpr RecisType kTypes[] = {
    {DType::kBool, "bool"},   {DType::kU8, "uint8"},    {DType::kI8, "int8"},     {DType::kI16, "int16"},
    {DType::kI32, "int32"},   {DType::kI64, "int64"},   {DType::kF16, "float16"}, {DType::kBF16, "bfloat16"},
    {DType::kF32, "float32"}, {DType::kF64, "float64"},
};

const RecisType* find_type(DType dtype) {
  const auto* found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](auto& type) { return type.dtype == dtype; });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string long_name(const RecordedBlock& block) {
  if (const RecisType* type = find_type(block.dtype)) return std::string(type->long_name);
  throw Error(ErrorCode::kCorrupt, "has a type that the recis layout does not have").in_tensor(block.key);
}

// Throws for what RecIS could not read.
void check_readable(const WriteBlock& block) {
  if (find_type(block.dtype()) == nullptr) {
    std::string names;
    for (const RecisType& type : kTypes) names += (names.empty() ? "" : ", ") + std::string(type.long_name);
    throw Error(ErrorCode::kUnsupported, "RecIS cannot read elements of " + std::string(name_of(block.dtype())) +
                                             "; it reads " + names + ". Convert it, or save with the plain layout")
        .in_tensor(block.tensor_name());
  }
  if (block.tensor_name().find('^') != std::string::npos) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "RecIS cannot read a name with '^', which separates the name from the buckets in its files; rename it, or save "
        "with the plain layout")
        .in_tensor(block.tensor_name());
  }
}

Value describe(const RecordedBlock& block) {
  Value::List shape(block.shape.begin(), block.shape.end());
  if (block.kind == BlockKind::kDense) {
    return Value::Map{{"dense", true},       {"dimension", 0},    {"dtype", long_name(block)},
                      {"is_hashmap", false}, {"name", block.key}, {"shape", std::move(shape)}};
  }
  if (block.slot == "embedding") {
    std::string ids = block.key;
    const std::size_t at = ids.rfind(".embedding/part_");
    if (at == std::string::npos) throw Error(ErrorCode::kCorrupt, "is no key of an embedding").in_tensor(block.key);
    ids.replace(at, std::string_view(".embedding").size(), ".id");
    return Value::Map{{"dense", false},
                      {"dimension", block.shape.back()},
                      {"dtype", long_name(block)},
                      {"hashmap_key", std::move(ids)},
                      {"hashmap_key_dtype", "int64"},
                      {"hashmap_value", block.key},
                      {"is_hashmap", true},
                      {"name", block.key},
                      {"shape", std::move(shape)}};
  }
  return Value::Map{{"data_offsets", Value::List{block.begin, block.end}},
                    {"dense", false},
                    {"dtype", std::string(name_of(block.dtype))},
                    {"shape", std::move(shape)}};
}

void append_indented(std::string& out, const Value& value, std::size_t depth) {
  const auto line = [&](std::size_t deep) { out += "\n" + std::string(deep * 4, ' '); };
  if (const auto* map = value.get_if<Value::Map>(); map != nullptr && !map->empty()) {
    out += "{";
    for (std::size_t i = 0; i < map->size(); ++i) {
      if (i > 0) out += ",";
      line(depth + 1);
      out += json_encode((*map)[i].first) + ": ";
      append_indented(out, (*map)[i].second, depth + 1);
    }
    line(depth);
    out += "}";
  } else if (const auto* list = value.get_if<Value::List>(); list != nullptr && !list->empty()) {
    out += "[";
    for (std::size_t i = 0; i < list->size(); ++i) {
      if (i > 0) out += ",";
      line(depth + 1);
      append_indented(out, (*list)[i], depth + 1);
    }
    line(depth);
    out += "]";
  } else {
    out += json_encode(value);
  }
}

template <class T>
Value object_of(std::map<std::string, T> entries) {
  Value::Map map;
  for (auto& [key, value] : entries) map.emplace_back(key, std::move(value));
  return map;
}

std::string indented(const Value& value) {
  std::string out;
  append_indented(out, value, 0);
  return out;
}

}  // namespace

// Round-robin by position, in the order given.
std::vector<PlannedFile> plan_recis(std::span<const WriteBlock> blocks, const ShardPosition& shard,
                                    std::uint64_t max_block_bytes) {
  std::vector<PlannedBlock> planned;
  for (const WriteBlock& block : blocks) {
    check_readable(block);
    if (block.kind() == BlockKind::kChunk) {
      throw Error(ErrorCode::kUnsupported,
                  "is distributed over the shards, and the recis layout has only whole tensors; save with the plain "
                  "layout, or give full_tensor() of it")
          .in_tensor(block.tensor_name());
    }
    std::vector<PlannedBlock> cut_block = cut(block, max_block_bytes);
    for (std::size_t i = 0; i < cut_block.size(); ++i) {
      // RecIS has no slots whose rows are of the shape []; its own of one number a row are [rows, 1].
      if (block.kind() == BlockKind::kSlot && cut_block[i].shape.size() == 1) cut_block[i].shape.push_back(1);
      cut_block[i].key = block.kind() == BlockKind::kDense ? block.tensor_name() + "^ "
                                                           : sparse_key(block, shard, i, cut_block.size());
      planned.push_back(std::move(cut_block[i]));
    }
  }
  check_names(planned);
  std::vector<PlannedFile> files(std::min<std::size_t>(shard.parallel, planned.size()));
  for (std::size_t i = 0; i < files.size(); ++i) files[i].number = i;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    PlannedFile& file = files[i % files.size()];
    file.nbytes += planned[i].nbytes;
    file.blocks.push_back(std::move(planned[i]));
  }
  return files;
}

std::string recis_file_name(const ShardRecord& record, const RecordedFile& file) {
  std::array<char, 80> name;
  std::snprintf(name.data(), name.size(), "model-%06llu-of-%06llu.safetensors",
                static_cast<unsigned long long>(record.shard * record.parallel + file.number),
                static_cast<unsigned long long>(record.shard_num * record.parallel));
  return name.data();
}

std::vector<std::pair<std::string, std::string>> recis_json(std::span<const ShardRecord> records) {
  std::map<std::string, Value> block_index;
  std::map<std::string, Value> file_index;
  std::map<std::string, Value> keys;
  std::map<std::string, Value> description;
  std::uint64_t number = 0;
  for (const ShardRecord& record : records) {
    if (record.parallel != records.front().parallel) {
      throw Error(ErrorCode::kConflict, "shard " + std::to_string(record.shard) +
                                            " was saved with parallel=" + std::to_string(record.parallel) +
                                            ", shard 0 with " + std::to_string(records.front().parallel) +
                                            "; file names of the recis layout need the same on all shards");
    }
    for (const RecordedFile& file : record.files) {
      file_index.emplace(recis_file_name(record, file), number);
      for (const RecordedBlock& block : file.blocks) {
        block_index.emplace(block.key, number);
        description.emplace(block.key, describe(block));
        if (block.kind != BlockKind::kDense)
          keys.emplace(block.key, block.name + "^" + bucket_range_text(block.buckets));
      }
      ++number;
    }
  }
  Value index =
      Value::Map{{"block_index", object_of(std::move(block_index))}, {"file_index", object_of(std::move(file_index))}};
  return {{kRecisKeys, indented(object_of(std::move(keys)))},
          {kRecisDescription, indented(object_of(std::move(description)))},
          {kRecisIndex, json_encode(index)}};
}

}  // namespace weightstore::checkpoint
