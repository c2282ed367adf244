#pragma once

// The SafeTensors format: header to table, and contents to header. docs/formats.md describes the bytes.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightstore/file_contents.h"
#include "weightstore/layout.h"
#include "weightstore/read_options.h"
#include "weightstore/tensor.h"

namespace weightstore::safetensors {

// Parses and checks the header. Accepts what the reference implementation accepts, except duplicate names, duplicate
// metadata keys, tensors given as arrays and types given as objects. Throws kCorrupt or kLimit.
TensorTable read_table(std::shared_ptr<const ByteSource> source, const Limits& limits = {});

// Where everything goes. Throws kInvalidArgument for contents the format cannot hold.
Layout plan(const FileContents& contents, TensorOrder order);

// A shard index: which file holds each tensor, and the index's own metadata as JSON text ("{}" when absent).
struct ShardIndex {
  TextMap weight_map;  // tensor to file, sorted by tensor
  std::string metadata_json;
};
// Parses and checks the JSON of an index. Each file name is one path component with the ending `.safetensors`.
ShardIndex parse_index(std::string_view json);
// The JSON that write_shards() puts beside the shards.
std::string write_index(const TextMap& weight_map, std::uint64_t total_size, const TextMap* metadata);

}  // namespace weightstore::safetensors
