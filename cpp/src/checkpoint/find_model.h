#pragma once

// Which model a directory holds. This is the place where kinds of directories are told apart: a new kind gets a line in
// DirectoryModel::Kind, is recognised in find_model(), and is opened by CheckpointIndex::open_directory().

#include <cstdint>
#include <filesystem>
#include <vector>

#include "io/file_ops.h"

namespace weightstore::checkpoint {

struct DirectoryModel {
  enum class Kind : std::uint8_t {
    kFile,    // one file of any format, or the index of a set: a Hugging Face set, or a checkpoint of the plain layout
    kShards,  // the shards of a set without an index
    kRecis,   // a checkpoint of the recis layout
  };
  Kind kind = Kind::kFile;
  std::vector<std::filesystem::path> paths;  // the file or index; of kShards, all shards in order
};

// What to do about a directory with several indexes.
enum class SeveralIndexes : std::uint8_t {
  kRefuse,
  kPreferPlain,  // takes the index that Saver writes, if it is among them: a job loads what it saved beside others
};

// Looks at the names in `directory`, not into the files:
//  1. One index: *.safetensors.index.json, *.bin.index.json, or that of RecIS.
//  2. No index: model.safetensors or, if there is none, pytorch_model.bin.
//  3. Neither: the only file that has the ending of a format, or the shards <name>-00001-of-00003.safetensors if there
//     are no others.
// Names that begin with a dot do not count. Throws Error with the directory and what is in it: kInvalidArgument for a
// directory with several models, kIo for one without a model, with an incomplete checkpoint, or with a shard missing.
DirectoryModel find_model(const std::filesystem::path& directory, SeveralIndexes several, io::FileOps& ops);

}  // namespace weightstore::checkpoint
