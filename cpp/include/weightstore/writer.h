#pragma once

// Writes tensors to a file, a set of shards, or memory.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/burn_release.h"
#include "weightstore/file_contents.h"
#include "weightstore/format.h"
#include "weightstore/layout.h"
#include "weightstore/progress.h"

namespace weightstore {

struct WriteOptions {
  bool durable = true;    // sync the file and its directory, so that the file survives a power failure after the call
  bool overwrite = true;  // false: Error(kConflict) when the target exists, or appears during the call
  // Computes a crc32c of every tensor while it is written, and stores the checksums in the metadata. If SafeTensors
  // metadata has no entry `format`, the writer adds `format: pt`: Hugging Face's loaders require the entry in files
  // that have metadata.
  bool checksums = false;
  // The release of Burn that shall read a Burnpack file. If it is not set, the release is that of a source that is
  // converted, or kNewestStableBurn.
  std::optional<BurnRelease> burn;
  TensorOrder order = TensorOrder::kCanonical;
  Progress progress{};
};

// Writes its contents to files or memory, any number of times if the producers can be filled more than once. A write
// reads each producer only when it reaches that tensor, and needs a few buffers of 4 MiB, however large the tensors
// are. Used by one thread at a time.
class Writer : public FileContents {
 public:
  // Writes a file in the given format, or in the format that the ending of the path names: `.safetensors` or `.bpk`.
  // The file appears under its name only when it is complete; until then an older file of that name stays unchanged. If
  // the path is a symlink, its target is replaced.
  //
  // Throws Error(kInvalidArgument, kUnsupported or kLimit) before anything is written when the contents cannot be a
  // valid file, or check_name() does not allow the name for the format. After an error the older file is still there,
  // unless only the last step failed, the sync of the directory.
  void write_file(const std::filesystem::path& path, const WriteOptions& options = {}) const;
  void write_file(const std::filesystem::path& path, Format format, const WriteOptions& options = {}) const;

  // Returns the bytes that write_file() would write.
  std::vector<std::byte> write_bytes(Format format, const WriteOptions& options = {}) const;
  // Writes the same bytes into memory that `allocate` returns for their number. `allocate` is called once, on the
  // calling thread, after the contents were checked. Tensors that lie in memory are copied by several threads, once.
  void write_memory(Format format, const std::function<MutableBytes(std::uint64_t size)>& allocate,
                    const WriteOptions& options = {}) const;

  // Writes SafeTensors: one file at `path` if the tensors have at most `max_shard_bytes`, otherwise a set of shards
  // whose index is `<path without .safetensors>.safetensors.index.json`. Returns the names of the shards; none for one
  // file.
  //
  // The new file or set replaces an older file or set of the same name. When the new one is complete, the call removes
  // the older one if it has the other form. It leaves a set alone if write_shards() would not have given the names of
  // all its shards. Without options.overwrite, an older file or set is an Error(kConflict).
  std::vector<std::string> write_file_or_shards(const std::filesystem::path& path, std::uint64_t max_shard_bytes,
                                                const WriteOptions& options = {}) const;

  // Writes a set of SafeTensors shards and their index. `index_path` ends in ".safetensors.index.json". The shards are
  // beside the index: for model.safetensors.index.json they are model-00001-of-00003.safetensors and so on. Each shard
  // gets tensors in the order of addition, up to `max_shard_bytes` of data; a larger tensor gets a shard of its own.
  // Metadata goes to the index. Returns the names of the shards.
  //
  // A set that replaces another gets names with a random id, such as model-1a2b3c4d-00001-of-00003.safetensors. All new
  // shards are complete, closed and (if durable) synced before the new index replaces the old one. This is the commit:
  // a reader finds the old set or the new set, complete. After the commit, the call removes the shards that the old
  // index names, if this function would have given their names. A failure before the commit leaves the old set and
  // removes the new shards. An old shard that cannot be removed is not an error; the next save of the set removes it.
  std::vector<std::string> write_shards(const std::filesystem::path& index_path, std::uint64_t max_shard_bytes,
                                        const WriteOptions& options = {}) const;
};

}  // namespace weightstore
