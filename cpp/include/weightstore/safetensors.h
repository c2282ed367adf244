#pragma once

// The SafeTensors format: reads a header into a table, and plans the header of a new file. docs/formats.md describes
// the bytes.

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightstore/file_contents.h"
#include "weightstore/format.h"
#include "weightstore/layout.h"
#include "weightstore/read_options.h"
#include "weightstore/tensor.h"

namespace weightstore::safetensors {

// Parses and checks the header. Accepts what the reference implementation accepts, except duplicate names, duplicate
// metadata keys, tensors that are written as JSON arrays, and types that are written as JSON objects. Throws
// Error(kCorrupt or kLimit).
TensorTable read_table(std::shared_ptr<const ByteSource> source, const Limits& limits = {});

// Plans a file with these contents. Throws Error(kInvalidArgument or kUnsupported) for contents that the format cannot
// hold, and Error(kLimit) for a header or data that would be too large.
Layout plan(const FileContents& contents, TensorOrder order);

// A shard index: which file holds each tensor, and metadata. Hugging Face's tools write the same index for SafeTensors
// files (model.safetensors.index.json) and for files of torch.save() (pytorch_model.bin.index.json).
struct ShardIndex {
  Format shard_format = Format::kSafetensors;  // of all files: kSafetensors or kPytorch
  TextMap weight_map;                          // name of the tensor to name of the file, sorted by tensor
  std::string metadata_json;                   // a JSON object; "{}" when the index has no metadata
};
// Parses and checks the JSON of an index. Each file name must be a single path component that ends in `.safetensors`,
// or each in `.bin`. Throws Error(kCorrupt).
ShardIndex parse_index(std::string_view json);
// The JSON of the index that Writer::write_shards() writes.
std::string write_index(const TextMap& weight_map, std::uint64_t total_size, const TextMap* metadata);

}  // namespace weightstore::safetensors
