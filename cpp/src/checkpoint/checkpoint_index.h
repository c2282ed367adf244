#pragma once

// The tensors of a checkpoint and where they lie, for both layouts.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/find_model.h"
#include "file/boxes/chunk_entry.h"
#include "io/file_ops.h"
#include "weightstore/reader.h"
#include "weightstore/table_snapshot.h"
#include "weightstore/value.h"

namespace weightstore::checkpoint {

// The largest index or record that is read: enough for far more than a million blocks.
inline constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{1} << 30;

// One tensor of a file: a dense tensor, a chunk of one, or a column of a table for a range of buckets.
struct CheckpointBlock {
  std::size_t tensor = 0;  // number in the table of the Reader
  BucketRange buckets;     // of a column
  std::uint64_t rows = 0;  // of a column
  Shape begin;             // of a chunk: where it begins in its tensor
};

// A dense tensor, or a whole column of a table.
struct CheckpointTensor {
  enum class Kind : std::uint8_t { kDense, kChunked, kColumn };

  DType dtype = DType::kU8;
  Shape shape;  // with the rows of all blocks
  Kind kind = Kind::kDense;
  std::vector<CheckpointBlock> blocks;  // one of kDense; those of a column in ascending order of buckets

  bool is_column() const { return kind == Kind::kColumn; }
};

// How a Reader shows the columns of tables.
enum class Columns : std::uint8_t {
  kWhole,     // each as one tensor
  kInBlocks,  // as the files have them, so that a conversion keeps the tables
};

// Immutable and thread-safe.
class CheckpointIndex {
 public:
  // Throws Error with the path: kIo when there is no checkpoint or the checkpoint is not complete, kCorrupt when its
  // blocks do not fit together.
  static CheckpointIndex open(const std::filesystem::path& path, ReadOptions options,
                              SeveralIndexes several = SeveralIndexes::kPreferPlain);

  // Of a file or a set that is open. `path` is where it was opened.
  static CheckpointIndex of_plain(Reader reader, const std::filesystem::path& path);

  // The files: its tensors are the blocks.
  const Reader& reader() const { return reader_; }
  // The checkpoint: its tensors are those of tensors(), under the same names. `path` is for messages.
  Reader assembled(const std::string& path, Columns columns = Columns::kWhole) const;
  const std::map<std::string, CheckpointTensor, std::less<>>& tensors() const { return tensors_; }
  // True when every id must lie in the buckets of its block. This is false for the recis layout: RecIS stores negative
  // ids by another rule than the one by which it looks them up.
  bool ids_match_buckets() const { return !recis_; }
  // True when a row shape [1] of the checkpoint fits a slot of the shape [], and the other way around. RecIS has no
  // slots of the shape [].
  bool takes_one_for_scalar() const { return recis_; }
  const CheckpointTensor* find(std::string_view name) const;
  const CheckpointTensor& at(std::string_view name) const;  // throws Error(kNotFound)

 private:
  explicit CheckpointIndex(Reader reader) : reader_(std::move(reader)) {}
  static CheckpointIndex open_directory(const std::filesystem::path& directory, const ReadOptions& options,
                                        SeveralIndexes several, io::FileOps& ops);
  static CheckpointIndex open_recis(const std::filesystem::path& directory, const ReadOptions& options,
                                    io::FileOps& ops);
  void add_dense(std::string name, std::size_t tensor);
  void add_chunk(TensorChunk chunk);
  void check_chunks(const std::string& name, const CheckpointTensor& tensor) const;
  void add_block(const std::string& table, const std::string& slot, const BucketRange& buckets, std::size_t tensor);
  // Adds the tables that the metadata describes. All other tensors are dense.
  void add_plain();
  // Adds a tensor of the recis layout; `names` is what tensorkey.json at `names_path` holds.
  void add_recis(const std::string& key, std::size_t tensor, const Value& names,
                 const std::filesystem::path& names_path);
  // Sorts the blocks of every column, and checks that they can be one array.
  void finish();

  Reader reader_;
  bool recis_ = false;
  std::map<std::string, CheckpointTensor, std::less<>> tensors_;
};

// True when Saver wrote the index. False for the index of a converted checkpoint.
bool is_own_index(const std::filesystem::path& index, io::FileOps& ops);

}  // namespace weightstore::checkpoint
