#pragma once

// Loads sharded checkpoints: those of Saver, in either layout, those of RecIS, and Hugging Face's sets of shards.

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/byte_source.h"
#include "weightstore/progress.h"
#include "weightstore/reader.h"
#include "weightstore/table_snapshot.h"
#include "weightstore/tensor.h"

namespace weightstore {

class HashTable;

// Memory of the caller for one dense tensor, or for a part of it.
struct LoadTarget {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;         // of the memory
  MutableBytes bytes;  // row-major

  // The target is the part of a tensor of the shape `whole` that begins at `begin`; the load reads only this part.
  struct PartOf {
    Shape whole;
    Shape begin;
  };
  std::optional<PartOf> part_of{};

  const Shape& whole() const { return part_of ? part_of->whole : shape; }
};

struct LoadOptions {
  // true: it is an error if the checkpoint lacks a target, or has a tensor or column that is no target.
  // false: missing targets keep their values, and other tensors of the checkpoint are ignored.
  bool strict = true;
  // Compares the checksums of everything that the load reads, which reads it twice. With kFull, Error(kUnsupported) for
  // a tensor or column that is to be loaded and has no checksum, before anything is changed; with kLazy it passes.
  Verify verify = Verify::kOff;
  Progress progress{};
};

// Options from JSON: an object with any of strict (true or false) and verify ("off", "lazy" or "full"; false is "off",
// true is "full"). Options that it does not name are taken from `base`.
LoadOptions load_options_from_json(std::string_view json, LoadOptions base = {});

// Loads into tables and tensors of the caller. Only load() changes them. Thread-compatible.
class Loader {
 public:
  // `path` is the directory of the checkpoint, its index, or a single file. The constructor reads nothing. Throws
  // Error(kInvalidArgument) unless parallel is 1 to 1024, the names of all targets differ (tensors, tables and children
  // of coalesced tables), and every tensor has memory of the right size.
  Loader(std::filesystem::path path, std::int64_t parallel, std::vector<std::shared_ptr<HashTable>> tables,
         std::vector<LoadTarget> tensors);

  void configure(LoadOptions options) { options_ = std::move(options); }

  // The load info for all targets, as JSON: {target: {name in the checkpoint: [columns]}}. The entry of a table lists
  // "id" and its slots; the list of a tensor is empty. The caller may change the names in the checkpoint, and remove
  // entries and slots.
  std::string default_load_info() const;

  // Loads what `info` says, with `parallel` threads, and returns the names of the loaded tensors.
  //  - Tables: the load adds rows, or overwrites the rows of the same ids. It skips ids outside the buckets of a table.
  //    So any number of shards can load what another number of shards saved, and each shard reads little more than it
  //    keeps.
  //  - The load checks names, types and shapes first, and reports all mismatches in one Error before it changes
  //    anything.
  //  - A tensor may be loaded from a column of a table. It then gets the whole column, as CheckpointReader shows it.
  //  - Tensors may share memory, as tied weights do, if the checkpoint has the same bytes for the shared memory.
  //    Otherwise Error(kInvalidArgument), before anything is changed.
  std::vector<std::string> load(std::string_view info) const;

 private:
  std::filesystem::path path_;
  unsigned parallel_;
  std::vector<std::shared_ptr<HashTable>> tables_;
  std::vector<LoadTarget> tensors_;
  LoadOptions options_;
};

// Opens a file as Reader::open() does, or the model in a directory: a set of shards, a checkpoint of either layout, or
// the only file of weights there (docs/formats.md, "Directories"). A column of a table is one tensor, "user@id" or
// "user@embedding". Its blocks are in the order of their buckets, and it has a view only if it is one block. Errors
// about a block name the block. Throws as Reader::open() does; also Error(kInvalidArgument) for a directory with
// several models, and Error(kIo) for one without a model or with an incomplete checkpoint. Both list what is there.
Reader open_model(const std::filesystem::path& path, const ReadOptions& options = {});

// Looks into a checkpoint. The names are the same in both layouts, as WriteBlock::tensor_name() gives them: "w",
// "user@id", "user@embedding". A column of a table is one array: its blocks in the order of their buckets. Immutable
// and thread-safe.
class CheckpointReader {
 public:
  // `path` as for Loader; it may also be a file of any format. The constructor reads the headers and the index.
  explicit CheckpointReader(const std::filesystem::path& path, const ReadOptions& options = {});
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;

  // The checkpoint as open_model() gives it. Single files and indexes are assembled, too.
  const Reader& reader() const;

  std::vector<std::string> tensor_names() const;  // in ascending order
  bool contains(std::string_view name) const;
  // The columns of every table by the table's name: "id" and its slots, in ascending order.
  std::map<std::string, std::vector<std::string>> tables() const;

  // The following functions throw Error(kNotFound) for a name that the checkpoint does not have.

  TensorInfo info(std::string_view name) const;

  // One block of a column.
  struct Block {
    BucketRange buckets;
    std::uint64_t rows = 0;
  };
  std::vector<Block> blocks(std::string_view name) const;  // empty for a dense tensor

  // `out` has the size of the tensor, or of the rows [begin, end) of its first dimension.
  void read(std::string_view name, MutableBytes out) const;
  void read_rows(std::string_view name, std::uint64_t begin, std::uint64_t end, MutableBytes out) const;

  // Checks that index, files and tables fit together and that every id lies in the buckets of its block, compares all
  // checksums, and returns the number of checksums. Throws Error(kCorrupt) that names what is wrong. Throws
  // Error(kUnsupported) if nothing is wrong but a tensor has no checksum. In the recis layout no tensor has one, and
  // the result is 0.
  std::size_t verify(const Progress& progress = {}) const;

 private:
  std::size_t at(std::string_view name) const;

  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace weightstore
