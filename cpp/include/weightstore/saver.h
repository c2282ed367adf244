#pragma once

// Saves the tables and tensors of a training job as a sharded checkpoint. A shard is one of the processes that save
// together. Every shard writes its own files; the checkpoint exists when shard 0 has written the index.

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/byte_producer.h"
#include "weightstore/dtype.h"
#include "weightstore/progress.h"
#include "weightstore/table_snapshot.h"
#include "weightstore/tensor.h"
#include "weightstore/writer.h"

namespace weightstore {

class HashTable;
class PendingSave;

enum class BlockKind : std::uint8_t { kDense, kChunk, kIds, kSlot };

// "dense", "chunk", "ids" or "slot".
std::string_view to_string(BlockKind kind);

// A named array that a shard saves: a dense tensor, a chunk of one that other shards save the rest of, or a column (the
// ids or a slot) of the shard's rows of a table. Saver::save() decides its name on disk and whether it is cut into
// several blocks. Immutable.
class WriteBlock {
 public:
  static WriteBlock dense(NewTensor tensor);
  // The part of a tensor of the shape `whole` that begins at `begin`. A part that is the whole tensor is dense. Throws
  // Error(kInvalidArgument) for a part that leaves its tensor.
  static WriteBlock chunk(NewTensor part, Shape whole, Shape begin);
  // For every child its ids, then its slots in order. Throws Error(kInvalidArgument) for a slot called "id" or with '@'
  // in its name.
  static std::vector<WriteBlock> of_table(const std::shared_ptr<const TableSnapshot>& snapshot);

  // The name of a dense tensor, or "<table>@id", "<table>@<slot>".
  const std::string& tensor_name() const { return name_; }
  // The buckets of a column, "00000@32768@65536" (begin, end, size); " " for others.
  std::string slice_info() const;
  std::uint64_t nbytes() const { return nbytes_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  BlockKind kind() const { return kind_; }

  bool is_column() const { return snapshot_ != nullptr; }

  // For a chunk: the shape of the whole tensor, and where the chunk begins in it.
  const Shape& whole() const { return whole_; }
  const Shape& begin() const { return begin_; }

  // For a column. Empty and null for others.
  const std::string& table() const { return table_; }
  const std::string& slot() const { return slot_; }
  std::size_t child() const { return child_; }
  const std::shared_ptr<const TableSnapshot>& snapshot() const { return snapshot_; }

  // The bytes of a dense tensor or a chunk, or of the rows of a column in these stripes.
  std::shared_ptr<ByteProducer> bytes(StripeRange stripes = {}) const;

 private:
  WriteBlock() = default;

  std::string name_;
  std::string table_;
  std::string slot_;
  DType dtype_ = DType::kU8;
  Shape shape_;
  std::uint64_t nbytes_ = 0;
  BlockKind kind_ = BlockKind::kDense;
  std::shared_ptr<ByteProducer> dense_;
  Shape whole_;
  Shape begin_;
  std::shared_ptr<const TableSnapshot> snapshot_;
  std::size_t child_ = 0;
  std::size_t slot_number_ = 0;
};

// The layout of a checkpoint: the names of its files and the JSON files beside them. docs/saver.md describes both.
enum class CheckpointLayout : std::uint8_t {
  kPlain,  // a Hugging Face set of shards; tables are cut into blocks; replaces an older checkpoint atomically
  kRecis,  // as RecIS writes and reads it
};

struct SaveOptions {
  CheckpointLayout layout = CheckpointLayout::kPlain;
  bool durable = true;    // the checkpoint survives a power failure after shard 0 has returned
  bool checksums = true;  // write a crc32c of every block to its file; the recis layout has no place for it
  // Tables are cut, at the borders of their stripes, into blocks of at most this many bytes. 0: 1 MiB in the plain
  // layout, one block in the recis layout.
  std::uint64_t max_block_bytes = 0;
  // The recis layout replaces a checkpoint only with `overwrite`. The plain layout always replaces a checkpoint of
  // Saver, and with `overwrite` also a Hugging Face set that another tool wrote.
  bool overwrite = false;
  // Names the save: the same on all shards, and new for every save of a run. 1 to 64 letters, digits, '-', '_' and '.'.
  // The other shards wait until shard 0 begins the save of this name. If it is empty, the shards count their saves, and
  // a shard waits until shard 0 begins the save of the same number. Then a shard that has missed a save, or that was
  // restarted alone, is refused.
  std::string attempt;
  // Names the run of the job: one line of text, the same on all shards, and new whenever the job is started. Shards of
  // different runs never save together. With both `attempt` and `run`, no shard waits for shard 0, so that the shards
  // may run one after another, shard 0 last. The caller guarantees that no other save has this attempt and this run.
  std::string run;
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // for waiting for other shards
  Progress progress{};
};

// Options from JSON: an object with any of layout ("plain" or "recis"), durable, checksums, max_block_bytes, overwrite,
// attempt, run and timeout (in seconds). Error(kInvalidArgument) for others. Options that it does not name are taken
// from `base`.
SaveOptions save_options_from_json(std::string_view json, SaveOptions base = {});

// Saves one shard. May save any number of times. Thread-compatible.
class Saver {
 public:
  // Throws Error(kInvalidArgument) unless 0 <= shard_index < shard_num and parallel is 1 to 1024.
  Saver(std::int64_t shard_index, std::int64_t shard_num, std::int64_t parallel, std::filesystem::path path);

  void configure(SaveOptions options) { options_ = std::move(options); }
  const SaveOptions& options() const { return options_; }
  std::int64_t shard_index() const { return static_cast<std::int64_t>(shard_index_); }
  std::int64_t shard_num() const { return static_cast<std::int64_t>(shard_num_); }

  // The blocks of this shard: those of the tables at this instant, then the dense tensors, which only shard 0 saves.
  std::vector<WriteBlock> make_write_blocks(std::span<const std::shared_ptr<HashTable>> tables,
                                            std::vector<NewTensor> tensors) const;

  // Begins a save for a caller that runs save() later, on another thread. On shard 0 it takes the lock that keeps other
  // saves out of the directory. Throws Error as save() does. Destroying the result ends the save.
  std::shared_ptr<PendingSave> begin() const;

  // Writes the blocks of this shard with `parallel` threads, to at most as many files. Creates the directory if it is
  // missing. On shard 0 it returns when the checkpoint is complete and in place. On another shard it returns when the
  // part of this shard is written and shard 0, which is in the same save, can use it. `pending` is the result of
  // begin(); without it, save() begins a save itself.
  //
  // Throws Error:
  //  - kInvalidArgument for blocks that cannot be in one checkpoint;
  //  - kConflict when the directory holds something that may not be replaced, when another save is running in it, and
  //    when shard 0 is in another save than this shard;
  //  - kIo, also when another shard does not come within the timeout;
  //  - kCancelled.
  // If it throws before the new checkpoint is in place, the previous checkpoint is still there.
  void save(std::span<const WriteBlock> blocks, std::shared_ptr<PendingSave> pending = nullptr) const;

  // For a shard that fails before it calls save(): counts the save, and tells shard 0 that this shard has failed. Waits
  // at most two seconds for shard 0 to begin.
  void give_up(std::string_view why, std::shared_ptr<PendingSave> pending = nullptr) const noexcept;

  // For a shard that leaves out a save that the other shards make: counts the save. Needed only without an attempt.
  void skip() const;

 private:
  std::uint64_t shard_index_;
  std::uint64_t shard_num_;
  unsigned parallel_;
  std::filesystem::path path_;
  SaveOptions options_;
};

}  // namespace weightstore
