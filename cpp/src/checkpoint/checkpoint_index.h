#pragma once

// What a checkpoint holds and where, whatever its layout.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_ops.h"
#include "weightstore/reader.h"
#include "weightstore/table_snapshot.h"
#include "weightstore/value.h"

namespace weightstore::checkpoint {

// Indexes and records of checkpoints; far more than a million blocks.
inline constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{1} << 30;

struct CheckpointPart {
  std::size_t tensor = 0;  // number in the Reader's table
  BucketRange slice;       // of a column
  std::uint64_t rows = 0;
};

// A dense tensor, or a column of a table.
struct CheckpointTensor {
  DType dtype = DType::kU8;
  Shape shape;  // with the rows of all parts
  bool column = false;
  std::vector<CheckpointPart> parts;  // one of a dense tensor; those of a column ascend by slice
};

// Immutable and thread-safe.
class CheckpointIndex {
 public:
  // Throws Error with the path: kIo when there is no checkpoint or it is not complete, kCorrupt when its parts do not
  // fit each other.
  static CheckpointIndex open(const std::filesystem::path& path, ReadOptions options);

  const Reader& reader() const { return reader_; }
  const std::map<std::string, CheckpointTensor, std::less<>>& tensors() const { return tensors_; }
  // True when every id lies in the slice of its block. RecIS places negative ids by another rule than it looks for
  // them.
  bool has_true_slices() const { return !recis_; }
  // True when rows of one number may have the shape [1] here and [] in a table, or the other way around. RecIS has no
  // slots of the shape [].
  bool has_one_for_scalar() const { return recis_; }
  const CheckpointTensor* find(std::string_view name) const;
  const CheckpointTensor& at(std::string_view name) const;  // throws Error(kNotFound)

 private:
  explicit CheckpointIndex(Reader reader) : reader_(std::move(reader)) {}
  static CheckpointIndex open_once(const std::filesystem::path& path, const ReadOptions& options);
  static CheckpointIndex open_recis(const std::filesystem::path& directory, const ReadOptions& options);
  void add_dense(std::string name, std::size_t tensor);
  void add_part(const std::string& table, const std::string& slot, const BucketRange& slice, std::size_t tensor);
  // Tables that the metadata describes; every tensor that is no part of one is dense.
  void add_plain();
  // Sorts parts, and checks that they can be one array.
  void finish();

  Reader reader_;
  bool recis_ = false;
  std::map<std::string, CheckpointTensor, std::less<>> tensors_;
};

// True when the index was written by Saver, and not by a conversion of what Saver wrote.
bool is_own_index(const std::filesystem::path& index, io::FileOps& ops);

}  // namespace weightstore::checkpoint
