#include "checkpoint/shard_record.h"

#include <utility>

#include "codec/json.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

constexpr int kVersion = 2;

Value encode_block(const RecordedBlock& block) {
  const auto list = [](const Shape& shape) { return Value::List(shape.begin(), shape.end()); };
  Value::Map map = {{"key", block.key},
                    {"name", block.name},
                    {"kind", std::string(to_string(block.kind))},
                    {"dtype", std::string(name_of(block.dtype))},
                    {"shape", list(block.shape)},
                    {"data_offsets", Value::List{block.begin, block.end}}};
  if (block.kind == BlockKind::kChunk) {
    map.emplace_back("whole", list(block.whole));
    map.emplace_back("chunk_begin", list(block.chunk_begin));
  }
  if (block.is_column()) {
    map.emplace_back("table", block.table);
    map.emplace_back("slot", block.slot);
    map.emplace_back("slice", bucket_range_value(block.buckets));
  }
  return map;
}

BlockKind kind_from_name(std::string_view name) {
  for (const BlockKind kind : {BlockKind::kDense, BlockKind::kChunk, BlockKind::kIds, BlockKind::kSlot}) {
    if (to_string(kind) == name) return kind;
  }
  fail_field("kind");
}

Shape shape_field(const Value& value, std::string_view key) {
  Shape shape;
  for (const Value& dim : list_field(value, key)) shape.push_back(as_uint(dim, key));
  return shape;
}

RecordedBlock decode_block(const Value& value) {
  RecordedBlock block;
  block.key = text_field(value, "key");
  block.name = text_field(value, "name");
  block.kind = kind_from_name(text_field(value, "kind"));
  const auto dtype = dtype_from_name(text_field(value, "dtype"));
  if (!dtype) fail_field("dtype");
  block.dtype = *dtype;
  block.shape = shape_field(value, "shape");
  const Value::List& offsets = list_field(value, "data_offsets");
  if (offsets.size() != 2) fail_field("data_offsets");
  block.begin = as_uint(offsets[0], "data_offsets");
  block.end = as_uint(offsets[1], "data_offsets");
  if (block.kind == BlockKind::kChunk) {
    block.whole = shape_field(value, "whole");
    block.chunk_begin = shape_field(value, "chunk_begin");
  }
  if (block.is_column()) {
    if (block.shape.empty()) fail_field("shape");
    block.table = text_field(value, "table");
    block.slot = text_field(value, "slot");
    block.buckets = as_bucket_range(field(value, "slice"), "slice");
  }
  return block;
}

}  // namespace

std::string_view to_string(CheckpointLayout layout) { return layout == CheckpointLayout::kPlain ? "plain" : "recis"; }

CheckpointLayout layout_from_name(std::string_view name) {
  if (name == "plain") return CheckpointLayout::kPlain;
  if (name == "recis") return CheckpointLayout::kRecis;
  throw Error(ErrorCode::kInvalidArgument, "the layout '" + printable(name) + "' is neither 'plain' nor 'recis'");
}

std::string encode_record(const ShardRecord& record) {
  Value::List files;
  for (const RecordedFile& file : record.files) {
    Value::List blocks;
    for (const RecordedBlock& block : file.blocks) blocks.push_back(encode_block(block));
    files.push_back(Value::Map{{"name", file.name},
                               {"number", file.number},
                               {"bytes", file.bytes},
                               {"header_crc32c", std::uint64_t{file.header_crc}},
                               {"blocks", std::move(blocks)}});
  }
  return json_encode(Value::Map{{"version", kVersion},
                                {"attempt", record.attempt},
                                {"session", record.session},
                                {"shard", record.shard},
                                {"shard_num", record.shard_num},
                                {"parallel", std::uint64_t{record.parallel}},
                                {"layout", std::string(to_string(record.layout))},
                                {"files", std::move(files)},
                                {"error", record.error}});
}

ShardRecord decode_record(std::string_view json) {
  const Value value = json_decode(json);
  if (uint_field(value, "version") != kVersion) {
    throw Error(ErrorCode::kUnsupported, "the record was written by another version of this library");
  }
  ShardRecord record;
  record.attempt = text_field(value, "attempt");
  record.session = text_field(value, "session");
  record.shard = uint_field(value, "shard");
  record.shard_num = uint_field(value, "shard_num");
  record.parallel = static_cast<unsigned>(uint_field(value, "parallel"));
  record.layout = layout_from_name(text_field(value, "layout"));
  record.error = text_field(value, "error");
  for (const Value& item : list_field(value, "files")) {
    RecordedFile file;
    file.name = text_field(item, "name");
    file.number = uint_field(item, "number");
    file.bytes = uint_field(item, "bytes");
    file.header_crc = static_cast<std::uint32_t>(uint_field(item, "header_crc32c"));
    for (const Value& block : list_field(item, "blocks")) file.blocks.push_back(decode_block(block));
    record.files.push_back(std::move(file));
  }
  return record;
}

}  // namespace weightstore::checkpoint
