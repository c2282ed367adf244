#pragma once

// Writes tensors to a file, a set of shards, or memory.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/file_contents.h"
#include "weightstore/format.h"
#include "weightstore/layout.h"
#include "weightstore/progress.h"

namespace weightstore {

namespace io {
class FileOps;
}

struct WriteOptions {
  bool durable = true;    // sync file and directory: what was written survives a power failure once we return
  bool overwrite = true;  // false: Error(kConflict) when the target exists, also when it appears meanwhile
  // Keep a crc32c of every tensor in the metadata, computed while writing. SafeTensors metadata without a `format` then
  // gets `format: pt`, which Hugging Face's loaders ask for wherever there is metadata.
  bool checksums = false;
  BurnCompat burn_compat = BurnCompat::k020;
  TensorOrder order = TensorOrder::kCanonical;
  Progress progress{};
  io::FileOps* file_ops = nullptr;  // the operating system unless a test puts another in its place
};

// Writes its contents as often as wanted (as long as the producers can be filled again). Nothing is read from a
// producer before a write_...() call reaches it, and at most a few blocks of it are in memory at a time.
// Thread-compatible.
class Writer : public FileContents {
 public:
  // Writes the format that the path's ending names: `.safetensors` or `.bpk`. The file appears under its name only when
  // it is whole; until then, and after an error, what was there stays. A symlink is followed to its target. Throws
  // kInvalidArgument or kLimit before anything is written when the contents cannot be a valid file.
  void write_file(const std::filesystem::path& path, const WriteOptions& options = {}) const;
  void write_file(const std::filesystem::path& path, Format format, const WriteOptions& options = {}) const;

  // The same bytes in memory.
  std::vector<std::byte> write_bytes(Format format, const WriteOptions& options = {}) const;

  // Writes SafeTensors: one file at `path`, or, when the tensors have more than `max_shard_bytes`, shards whose index
  // is
  // `<path without .safetensors>.safetensors.index.json`. Whichever of the two was there before is replaced: once the
  // new form is complete the other is removed; a set only when all its shards have names such as write_shards() gives.
  // Without options.overwrite either is a conflict. Returns the shards' names; none when it is one file.
  std::vector<std::string> write_file_or_shards(const std::filesystem::path& path, std::uint64_t max_shard_bytes,
                                                const WriteOptions& options = {}) const;

  // Writes SafeTensors shards of at most `max_shard_bytes` of data each (a larger tensor gets its own) beside
  // `index_path`, which ends in ".safetensors.index.json": with base name "model" the shards are
  // model-00001-of-00003.safetensors and so on. Tensors are taken in the order of addition. Metadata goes to the index.
  // Returns the shards' names.
  //
  // A set that replaces another gets names with a random id, model-1a2b3c4d-00001-of-00003.safetensors. Every new shard
  // is complete, synced and closed before the new index replaces the old one, which is the commit; then the shards that
  // the old index named are removed, if they have such names as this function gives. So the index always leads to the
  // old set or to the new one, whole. A failure before the commit leaves the old set and removes the new shards. An old
  // shard that cannot be removed is no error; the next save of the set removes it.
  std::vector<std::string> write_shards(const std::filesystem::path& index_path, std::uint64_t max_shard_bytes,
                                        const WriteOptions& options = {}) const;
};

}  // namespace weightstore
