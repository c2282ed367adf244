#include "weightstore/saver.h"

#include <utility>

#include "checkpoint/arguments.h"
#include "checkpoint/layouts.h"
#include "checkpoint/save/protocol/protocol.h"
#include "io/file_ops.h"
#include "weightstore/error.h"
#include "weightstore/hash_table.h"

namespace weightstore {
namespace {

using checkpoint::PlannedFile;
using checkpoint::SaveContext;
using checkpoint::ShardPosition;

constexpr std::int64_t kMaxShards = 1'000'000;

}  // namespace

Saver::Saver(std::int64_t shard_index, std::int64_t shard_num, std::int64_t parallel, std::filesystem::path path)
    : shard_index_(static_cast<std::uint64_t>(shard_index)),
      shard_num_(static_cast<std::uint64_t>(shard_num)),
      parallel_(checkpoint::checked_parallel(parallel)),
      path_(std::move(path)) {
  checkpoint::check_path(path_);
  if (shard_index < 0 || shard_index >= shard_num || shard_num > kMaxShards) {
    throw Error(ErrorCode::kInvalidArgument, "shard_index " + std::to_string(shard_index) + " with shard_num " +
                                                 std::to_string(shard_num) +
                                                 ": the index must be at least 0 and below the number");
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

std::shared_ptr<PendingSave> Saver::begin() const try {
  const SaveContext context{path_, {shard_index_, shard_num_, parallel_}, options_, io::current_file_ops()};
  auto pending = checkpoint::new_save(context);
  checkpoint::do_or_report(context, *pending, [&] { checkpoint::open_save(context, *pending); });
  return pending;
} catch (Error& error) {
  error.in_file(path_.native());
  throw;
}

void Saver::skip() const {
  const SaveContext context{path_, {shard_index_, shard_num_, parallel_}, options_, io::current_file_ops()};
  checkpoint::new_save(context);
}

void Saver::give_up(std::string_view why, std::shared_ptr<PendingSave> pending) const noexcept {
  try {
    const SaveContext context{path_, {shard_index_, shard_num_, parallel_}, options_, io::current_file_ops()};
    if (pending == nullptr) pending = checkpoint::new_save(context);
    checkpoint::report_failure(context, *pending, why);
  } catch (...) {
  }
}

void Saver::save(std::span<const WriteBlock> blocks, std::shared_ptr<PendingSave> pending) const try {
  const SaveContext context{path_, {shard_index_, shard_num_, parallel_}, options_, io::current_file_ops()};
  if (pending == nullptr) pending = checkpoint::new_save(context);
  // The blocks are checked before anything on disk changes.
  const auto plan = options_.layout == CheckpointLayout::kPlain ? checkpoint::plan_plain : checkpoint::plan_recis;
  const std::vector<PlannedFile> files = checkpoint::do_or_report(
      context, *pending, [&] { return plan(blocks, context.shard, options_.max_block_bytes); });
  if (pending->directory.empty())
    checkpoint::do_or_report(context, *pending, [&] { checkpoint::open_save(context, *pending); });
  checkpoint::run_save(context, *pending, files);
} catch (Error& error) {
  error.in_file(path_.native());
  throw;
}

}  // namespace weightstore
