#pragma once

// A set of shards read as one table: SafeTensors files, or files of torch.save().

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "file/checksum_table.h"
#include "formats/format_spec.h"
#include "io/file_ops.h"
#include "weightstore/reader.h"

namespace weightstore {

struct ShardSet {
  TensorTable table;
  Format shard_format = Format::kSafetensors;
  ExpansionLimit expansion{};
  std::vector<ChecksumEntry> checksum_entries;  // of the shards that have one
};

// Opens every shard that the index names, beside the index. Each tensor of the index must be in the shard it is mapped
// to and in no other, and each tensor of a shard must be in the index. Throws Error with the path of the file at fault.
ShardSet open_shards(const std::filesystem::path& index_path, const ByteSource& index, const ReadOptions& options,
                     io::FileOps& ops);

// Opens one of the `files` files of a set. All of them stay open: what was opened can be read to the end, though a save
// replaces it meanwhile. Raises the process's limit of open files if that helps.
std::shared_ptr<const ByteSource> open_member(const std::filesystem::path& path, std::size_t files, bool map,
                                              io::FileOps& ops);

// Opens SafeTensors files that belong together and have no Hugging Face index. Each tensor must be in one of the files
// only.
ShardSet open_set(std::span<const std::filesystem::path> paths, const ReadOptions& options, io::FileOps& ops);

}  // namespace weightstore
