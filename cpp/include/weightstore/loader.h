#pragma once

// Loads sharded checkpoints: those of Saver in either layout, of RecIS, and Hugging Face's sets of shards.

#include <cstdint>
#include <filesystem>
#include <memory>
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

// Memory for one dense tensor.
struct LoadTarget {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  MutableBytes bytes;  // row-major
};

struct LoadOptions {
  // Whatever is asked for and not in the checkpoint, or in the checkpoint and not among the targets, is an error.
  // Without it, what is missing stays as it was and what is not wanted is passed over.
  bool strict = true;
  // Compare the checksums of what is read, which reads it twice; what has none is Error(kUnsupported).
  bool verify = false;
  Progress progress{};
};

// Options from JSON: an object with any of strict, verify. What it does not name is as in `base`.
LoadOptions load_options_from_json(std::string_view json, LoadOptions base = {});

// Loads into tables and tensors of the caller's, which are changed by load() alone. Thread-compatible.
class Loader {
 public:
  // `path`: the checkpoint's directory, its index, or a single file. Nothing is read yet. Throws
  // Error(kInvalidArgument) unless parallel is 1 to 1024, no two targets have one name (tensors, tables and children of
  // coalesced tables), and every tensor has memory of its size.
  Loader(std::filesystem::path path, std::int64_t parallel, std::vector<std::shared_ptr<HashTable>> tables,
         std::vector<LoadTarget> tensors);

  void configure(LoadOptions options) { options_ = std::move(options); }

  // What load() would do for all targets, as JSON: {destination: {source: [columns]}}. A table's entry lists "id" and
  // its slots, a tensor's list is empty. Entries, slots and sources may be changed or removed.
  std::string default_load_info() const;

  // Loads as `info` says. Rows are added to the tables or overwrite what they have for the same id; ids outside of a
  // table's slice are passed over, so that any number of shards loads what any other number saved, each reading little
  // more than it keeps. All that does not fit (names, types, shapes) is told in one Error before anything is changed.
  // A tensor may have a column of a table as its source, which is then all parts of it, as CheckpointReader shows it.
  // Tensors may share memory, as tied weights do, if the checkpoint has the same bytes for what they share; otherwise
  // Error(kInvalidArgument), before anything is changed. Returns the names of the tensors that were loaded.
  std::vector<std::string> load(std::string_view info) const;

 private:
  std::filesystem::path path_;
  unsigned parallel_;
  std::vector<std::shared_ptr<HashTable>> tables_;
  std::vector<LoadTarget> tensors_;
  LoadOptions options_;
};

// Looks into a checkpoint. Names are those that WriteBlock::tensor_name() gives, in every layout: "w", "user@id",
// "user@embedding". The parts of a table's column are shown as one array, in the order of their slices. Immutable and
// thread-safe.
class CheckpointReader {
 public:
  // As Loader's path; also a Burnpack file. Reads headers and index.
  explicit CheckpointReader(const std::filesystem::path& path, const ReadOptions& options = {});
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;

  std::vector<std::string> tensor_names() const;  // ascending
  bool contains(std::string_view name) const;
  // These throw Error(kNotFound) for unknown names.
  TensorInfo info(std::string_view name) const;  // its place in a file is that of its first part
  struct Part {
    BucketRange slice;
    std::uint64_t rows = 0;
  };
  std::vector<Part> slices(std::string_view name) const;  // none for a dense tensor

  // `out` has the tensor's size, or that of the rows [begin, end) of its first dimension.
  void read(std::string_view name, MutableBytes out) const;
  void read_rows(std::string_view name, std::uint64_t begin, std::uint64_t end, MutableBytes out) const;

  // Checks that index, files and table parts fit each other, compares every checksum, and looks whether ids lie in the
  // slices of their parts; returns how many checksums there were. Throws Error(kCorrupt) naming what is wrong, and
  // Error(kUnsupported) when all that is right but a tensor has no checksum. In the recis layout none has.
  std::size_t verify(const Progress& progress = {}) const;

 private:
  struct State;
  std::unique_ptr<const State> state_;
};

}  // namespace weightstore
