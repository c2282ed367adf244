#pragma once

// The record that a shard writes after its files: what its part of the save consists of.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/json_fields.h"
#include "file/bucket_range_text.h"
#include "weightstore/saver.h"

namespace weightstore::checkpoint {

struct RecordedBlock {
  std::string key;   // the name of the tensor in the file
  std::string name;  // WriteBlock::tensor_name()
  BlockKind kind = BlockKind::kDense;
  std::string table;  // of a column, like slot and buckets
  std::string slot;
  BucketRange buckets;
  Shape whole;  // of a chunk: the shape of its tensor, and where it begins there
  Shape chunk_begin;
  DType dtype = DType::kU8;
  Shape shape;
  std::uint64_t begin = 0;  // of its bytes, from the end of the header
  std::uint64_t end = 0;

  bool is_column() const { return kind == BlockKind::kIds || kind == BlockKind::kSlot; }
};

struct RecordedFile {
  std::string name;          // before a commit renames it
  std::uint64_t number = 0;  // among the files of its shard
  std::uint64_t bytes = 0;
  std::uint32_t header_crc = 0;  // crc32c of the header
  std::vector<RecordedBlock> blocks;
};

struct ShardRecord {
  std::string attempt;
  std::string session;  // of the save that the part belongs to: see save/protocol/protocol.cc
  std::uint64_t shard = 0;
  std::uint64_t shard_num = 0;
  unsigned parallel = 0;
  CheckpointLayout layout = CheckpointLayout::kPlain;
  std::vector<RecordedFile> files;
  std::string error;  // why the shard failed; empty if it did not
};

std::string encode_record(const ShardRecord& record);
// Throws Error(kCorrupt) for text that encode_record() does not write, and Error(kUnsupported) for another version.
ShardRecord decode_record(std::string_view json);

// "plain" or "recis". layout_from_name() throws Error(kInvalidArgument) for other names.
std::string_view to_string(CheckpointLayout layout);
CheckpointLayout layout_from_name(std::string_view name);

}  // namespace weightstore::checkpoint
