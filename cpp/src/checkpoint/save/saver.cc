#include "weightstore/saver.h"

#include <utility>

#include "checkpoint/layouts.h"
#include "checkpoint/save/shard_save.h"
#include "io/checked_io.h"
#include "table/names.h"
#include "weightstore/error.h"
#include "weightstore/hash_table.h"

namespace weightstore {
namespace {

using checkpoint::PlannedFile;
using checkpoint::ShardJob;
using checkpoint::ShardPosition;

constexpr std::int64_t kMaxParallel = 1024;
constexpr std::int64_t kMaxShards = 1'000'000;

io::FileOps& file_ops_of(const SaveOptions& options) {
  return options.file_ops != nullptr ? *options.file_ops : io::system_file_ops();
}

}  // namespace

Saver::Saver(std::int64_t shard_index, std::int64_t shard_num, std::int64_t parallel, std::filesystem::path path)
    : shard_index_(static_cast<std::uint64_t>(shard_index)),
      shard_num_(static_cast<std::uint64_t>(shard_num)),
      parallel_(static_cast<unsigned>(parallel)),
      path_(std::move(path)) {
  table::check_path(path_);
  if (shard_index < 0 || shard_index >= shard_num || shard_num > kMaxShards) {
    throw Error(ErrorCode::kInvalidArgument, "shard_index " + std::to_string(shard_index) + " with shard_num " +
                                                 std::to_string(shard_num) +
                                                 ": the index must be at least 0 and below the number");
  }
  if (parallel < 1 || parallel > kMaxParallel) {
    throw Error(ErrorCode::kInvalidArgument, "parallel is " + std::to_string(parallel) + "; it must be 1 to 1024");
  }
}

std::vector<WriteBlock> Saver::make_write_blocks(std::span<const std::shared_ptr<HashTable>> tables,
                                                 std::vector<NewTensor> tensors) const {
  std::vector<WriteBlock> blocks;
  for (const auto& table : tables) {
    if (table == nullptr) throw Error(ErrorCode::kInvalidArgument, "a table to save is null");
    for (WriteBlock& block : WriteBlock::of_table(table->snapshot())) blocks.push_back(std::move(block));
  }
  if (shard_index_ != 0) return blocks;
  for (NewTensor& tensor : tensors) blocks.push_back(WriteBlock::dense(std::move(tensor)));
  return blocks;
}

std::shared_ptr<SaveTurn> Saver::begin() const try {
  const ShardJob job{path_, {shard_index_, shard_num_, parallel_}, options_, file_ops_of(options_)};
  auto turn = checkpoint::new_turn(job);
  checkpoint::do_or_tell(job, *turn, [&] { checkpoint::open_turn(job, *turn); });
  return turn;
} catch (Error& error) {
  error.in_file(path_.native());
  throw;
}

void Saver::skip() const {
  const ShardJob job{path_, {shard_index_, shard_num_, parallel_}, options_, file_ops_of(options_)};
  checkpoint::new_turn(job);
}

void Saver::give_up(std::string_view why, std::shared_ptr<SaveTurn> turn) const noexcept {
  try {
    const ShardJob job{path_, {shard_index_, shard_num_, parallel_}, options_, file_ops_of(options_)};
    if (turn == nullptr) turn = checkpoint::new_turn(job);
    checkpoint::tell_failure(job, *turn, why);
  } catch (...) {
  }
}

void Saver::save(std::span<const WriteBlock> blocks, std::shared_ptr<SaveTurn> turn) const try {
  const ShardJob job{path_, {shard_index_, shard_num_, parallel_}, options_, file_ops_of(options_)};
  if (turn == nullptr) turn = checkpoint::new_turn(job);
  // Nothing of a checkpoint is touched when the blocks cannot be one.
  const auto plan = options_.layout == CheckpointLayout::kPlain ? checkpoint::plan_plain : checkpoint::plan_recis;
  const std::vector<PlannedFile> files =
      checkpoint::do_or_tell(job, *turn, [&] { return plan(blocks, job.shard, options_.max_block_bytes); });
  if (turn->directory.empty()) checkpoint::do_or_tell(job, *turn, [&] { checkpoint::open_turn(job, *turn); });
  checkpoint::save_part(job, *turn, files);
} catch (Error& error) {
  error.in_file(path_.native());
  throw;
} catch (const std::filesystem::filesystem_error& error) {
  throw io::io_error(error.code().value(), "cannot look into the directory of the checkpoint", path_.native());
}

}  // namespace weightstore
