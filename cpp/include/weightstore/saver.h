#pragma once

// Saves the tables and tensors of a training job as a sharded checkpoint: every shard writes its own files at once, and
// the checkpoint exists when shard 0 has written its index.

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
class SaveTurn;

enum class BlockKind : std::uint8_t { kDense, kIds, kSlot };

// "dense", "ids" or "slot".
std::string_view to_string(BlockKind kind);

// One named array that a shard contributes: a dense tensor, or a column (the ids, or a slot) of its part of a table.
// Immutable: what it is called on disk, and whether it is cut, is decided by Saver::save().
class WriteBlock {
 public:
  static WriteBlock dense(NewTensor tensor);
  // For every child the ids, then its slots in order. Throws Error(kInvalidArgument) for a slot that cannot be told
  // from the ids or from the table's name.
  static std::vector<WriteBlock> of_table(const std::shared_ptr<const TableSnapshot>& snapshot);

  // A dense tensor's name, or "<table>@id", "<table>@<slot>".
  const std::string& tensor_name() const { return name_; }
  // "00000@32768@65536" for a column, " " for a dense tensor.
  std::string slice_info() const;
  std::uint64_t nbytes() const { return nbytes_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  BlockKind kind() const { return kind_; }

  // Of a column; empty and null for a dense tensor.
  const std::string& table() const { return table_; }
  const std::string& slot() const { return slot_; }
  std::size_t child() const { return child_; }
  const std::shared_ptr<const TableSnapshot>& snapshot() const { return snapshot_; }

  // The bytes of a dense tensor, or of a column's rows in these stripes.
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
  std::shared_ptr<const TableSnapshot> snapshot_;
  std::size_t child_ = 0;
  std::size_t slot_number_ = 0;
};

// What the files are called and what lies beside them; docs/saver.md describes both.
enum class CheckpointLayout : std::uint8_t {
  kPlain,  // clean names, tables cut into sub-slices, a Hugging Face index; replaces an older checkpoint atomically
  kRecis,  // as RecIS writes and reads them
};

struct SaveOptions {
  CheckpointLayout layout = CheckpointLayout::kPlain;
  bool durable = true;   // what was saved survives a power failure once shard 0 has returned
  bool checksum = true;  // keep a crc32c of every block in its file; the recis layout has no place for it
  // Tables are cut, at the borders of their stripes, into blocks of at most this many bytes. 0: 1 MiB in the plain
  // layout, uncut in the recis layout.
  std::uint64_t max_block_bytes = 0;
  // The recis layout replaces a checkpoint only with this. The plain layout always replaces its own, and with this also
  // a Hugging Face set that another tool wrote.
  bool overwrite = false;
  // Names the save: the same on all shards, and new for every save of a run. Letters, digits, '-', '_' and '.', at most
  // 64. Shards other than 0 wait until shard 0 begins the save of this name. Empty: the shards count their saves, and a
  // shard waits until shard 0 begins the save of the same number; a shard that has missed a save, or that was restarted
  // alone, is refused.
  std::string attempt;
  // Names the run of the job: a line of text, the same on all shards, and new whenever the job is started. Shards of
  // different runs never save together. With `attempt` and `run` no shard waits for shard 0 to begin, so that shards
  // may run one after another, shard 0 last: the caller vouches that no other save has this attempt and this run.
  std::string run;
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // for other shards
  Progress progress{};
  io::FileOps* file_ops = nullptr;  // the operating system unless a test puts another in its place
};

// Options from JSON: an object with any of layout ("plain" or "recis"), durable, checksum, max_block_bytes, overwrite,
// attempt, run, timeout (in seconds). Others are refused. What it does not name is as in `base`.
SaveOptions save_options_from_json(std::string_view json, SaveOptions base = {});

// One shard's side of a save. Thread-compatible; may save as often as wanted.
class Saver {
 public:
  // Throws Error(kInvalidArgument) unless 0 <= shard_index < shard_num and parallel is 1 to 1024.
  Saver(std::int64_t shard_index, std::int64_t shard_num, std::int64_t parallel, std::filesystem::path path);

  void configure(SaveOptions options) { options_ = std::move(options); }
  const SaveOptions& options() const { return options_; }
  std::int64_t shard_index() const { return static_cast<std::int64_t>(shard_index_); }
  std::int64_t shard_num() const { return static_cast<std::int64_t>(shard_num_); }

  // The blocks of this shard: those of every table as it is now, then the dense tensors, which only shard 0
  // contributes.
  std::vector<WriteBlock> make_write_blocks(std::span<const std::shared_ptr<HashTable>> tables,
                                            std::vector<NewTensor> tensors) const;

  // Takes this shard's turn: on shard 0 the lock that keeps other saves out of the directory. For callers that run
  // save() later, on another thread. Throws Error as save() does. The turn ends when it is destroyed.
  std::shared_ptr<SaveTurn> begin() const;

  // Writes the blocks of this shard with `parallel` threads to at most as many files. The directory is created when it
  // is missing. Returns on shard 0 when the checkpoint is complete and in place; on the others when their part is
  // written and shard 0, which has begun the same save, can use it. `turn` is of begin(); without one, save() takes a
  // turn itself. Throws Error: kInvalidArgument for blocks that cannot be in one checkpoint; kConflict when the
  // directory holds what may not be replaced, when another save is running in it, and when shard 0 is in another save
  // than this shard; kIo, also when a shard does not come within the timeout; kCancelled. Whatever happens, the
  // checkpoint that was there before stays until the new one takes its place.
  void save(std::span<const WriteBlock> blocks, std::shared_ptr<SaveTurn> turn = nullptr) const;

  // For a shard that fails before it calls save(): counts the save, and tells shard 0 that this shard's part will not
  // come. Waits at most two seconds for shard 0 to begin.
  void give_up(std::string_view why, std::shared_ptr<SaveTurn> turn = nullptr) const noexcept;

  // For a shard that leaves out a save that the others make: counts it. Needed only without an attempt.
  void skip() const;

 private:
  std::uint64_t shard_index_;
  std::uint64_t shard_num_;
  unsigned parallel_;
  std::filesystem::path path_;
  SaveOptions options_;
};

}  // namespace weightstore
