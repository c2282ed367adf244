#pragma once

// What a shard says about its part of a save after it has written its files.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/json_fields.h"
#include "file/bucket_range_text.h"
#include "weightstore/saver.h"

namespace weightstore::checkpoint {

struct RecordedBlock {
  std::string key;   // the tensor's name in the file
  std::string name;  // WriteBlock::tensor_name()
  BlockKind kind = BlockKind::kDense;
  std::string table;  // of a column, as are slot and slice
  std::string slot;
  BucketRange slice;
  DType dtype = DType::kU8;
  Shape shape;
  std::uint64_t begin = 0;  // of its data, counted from the end of the header
  std::uint64_t end = 0;
};

struct RecordedFile {
  std::string name;          // as it was written
  std::uint64_t number = 0;  // among the files of its shard
  std::uint64_t bytes = 0;
  std::uint32_t header_crc = 0;  // crc32c of everything in front of the data
  std::vector<RecordedBlock> blocks;
};

struct ShardRecord {
  std::string attempt;
  std::string session;  // of the save that the part is for: see session.cc
  std::uint64_t shard = 0;
  std::uint64_t shard_num = 0;
  unsigned parallel = 0;
  CheckpointLayout layout = CheckpointLayout::kPlain;
  std::vector<RecordedFile> files;
  std::string error;  // not empty: the shard failed, and this is why
};

std::string encode_record(const ShardRecord& record);
// Throws Error(kCorrupt) for anything encode_record() does not write.
ShardRecord decode_record(std::string_view json);

// "plain" or "recis", and back; Error(kInvalidArgument) for others.
std::string_view to_string(CheckpointLayout layout);
CheckpointLayout layout_from_name(std::string_view name);

}  // namespace weightstore::checkpoint
