#include "weightstore/saver.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "io/atomic_file.h"
#include "io/checked_io.h"
#include "io/parallel.h"
#include "io/text_file.h"
#include "sharded/attempt.h"
#include "sharded/block_plan.h"
#include "sharded/commit.h"
#include "sharded/data_files.h"
#include "sharded/leftovers.h"
#include "sharded/names.h"
#include "sharded/process_start.h"
#include "weightstore/error.h"
#include "weightstore/hash_table.h"

namespace weightstore {
namespace {

using sharded::PlannedFile;
using sharded::RecordedFile;
using sharded::SavePlace;
using sharded::ShardPosition;
using sharded::ShardRecord;

constexpr std::int64_t kMaxParallel = 1024;
constexpr std::int64_t kMaxShards = 1'000'000;

// Counts what the workers have written and tells the caller, on the caller's thread.
class Meter {
 public:
  Meter(const Progress& progress, std::uint64_t total) : progress_(progress), total_(total) {}

  void moved(std::uint64_t bytes, std::string_view name) {
    done_ += bytes;
    if (!progress_) return;
    const std::lock_guard lock(mutex_);
    name_ = name;
  }
  void report() {
    if (!progress_) return;
    std::string name;
    {
      const std::lock_guard lock(mutex_);
      name = name_;
    }
    // Headers count for nothing, and the end is reported once.
    tell(std::min(done_.load(), total_ == 0 ? 0 : total_ - 1), name);
  }
  // The save is done, and cannot be cancelled any more.
  void report_end() {
    if (progress_) progress_(total_, total_, name_);
  }

 private:
  void tell(std::uint64_t done, std::string_view name) const {
    if (!progress_(done, total_, name)) throw Error(ErrorCode::kCancelled, "saving was cancelled");
  }

  const Progress& progress_;
  const std::uint64_t total_;
  std::atomic<std::uint64_t> done_ = 0;
  std::mutex mutex_;
  std::string name_;
};

std::vector<RecordedFile> write_files(const SavePlace& place, std::span<const PlannedFile> files,
                                      std::string_view attempt, std::uint64_t shard, const SaveOptions& options,
                                      Meter& meter, io::FileOps& ops) {
  const char* prefix = options.layout == CheckpointLayout::kPlain ? sharded::kPlainPrefix : sharded::kHiddenPrefix;
  const unsigned attempt_try = sharded::next_try(place.work, prefix, attempt, shard);
  std::vector<RecordedFile> records(files.size());
  const auto path_of = [&](const PlannedFile& file) {
    return place.work / sharded::data_name(prefix, attempt, attempt_try, shard, file.number);
  };
  try {
    io::run_parallel(
        static_cast<unsigned>(files.size()),
        [&](unsigned worker, const io::StopFlag& stop) {
          const auto moved = [&](std::uint64_t bytes, std::string_view name) {
            if (stop.is_set()) throw Error(ErrorCode::kCancelled, "another file of this save could not be written");
            meter.moved(bytes, name);
          };
          records[worker] = sharded::write_data_file(path_of(files[worker]), files[worker], options, moved, ops);
        },
        [&] { meter.report(); });
  } catch (...) {
    for (const PlannedFile& file : files) ops.unlink(path_of(file).c_str());
    throw;
  }
  ops.reached("data written");
  return records;
}

// Files and the record of a shard, which go again when the save fails.
class Part {
 public:
  Part(const SavePlace& place, ShardRecord record, const SaveOptions& options, io::FileOps& ops)
      : place_(place), record_(std::move(record)), options_(options), ops_(ops) {
    // One of an earlier try under the same id says nothing about this one.
    ops_.unlink(path().c_str());
  }

  ShardRecord& record() { return record_; }

  void publish() {
    record_.written_ms = sharded::now_ms();
    io::write_text_file(path(), sharded::encode_record(record_), {options_.durable, true}, ops_);
    ops_.reached("record written");
  }

  // Removes the files, and tells shard 0 why it need not wait.
  void withdraw(std::string_view why) noexcept {
    try {
      // Should the commit itself have come through, they are part of the checkpoint.
      const auto needed = sharded::checkpoint_files(place_.work, ops_);
      for (const RecordedFile& file : record_.files) {
        if (needed && !needed->contains(file.name)) ops_.unlink((place_.work / file.name).c_str());
      }
      ops_.unlink(path().c_str());
      if (record_.shard == 0) {
        if (place_.swaps()) ops_.rmdir(place_.work.c_str());  // unless others have something in it
        return;
      }
      record_.files.clear();
      record_.error = why;
      record_.written_ms = sharded::now_ms();
      io::write_text_file(path(), sharded::encode_record(record_), {false, true}, ops_);
    } catch (...) {
    }
  }

 private:
  std::filesystem::path path() const { return place_.work / sharded::record_name(record_.attempt, record_.shard); }

  const SavePlace& place_;
  ShardRecord record_;
  const SaveOptions& options_;
  io::FileOps& ops_;
};

ShardRecord new_record(const ShardPosition& shard, const SaveOptions& options, const std::string& attempt) {
  ShardRecord record;
  record.attempt = attempt;
  record.run = options.attempt.empty() ? attempt : options.run;
  record.shard = shard.index;
  record.shard_num = shard.count;
  record.parallel = shard.parallel;
  record.layout = options.layout;
  return record;
}

void make_building_site(const SavePlace& place, io::FileOps& ops) {
  if (!place.swaps()) return;
  if (ops.mkdir(place.work.c_str(), 0777) == 0) {
    // It will be the checkpoint's directory: as private as that one.
    std::error_code error;
    std::filesystem::permissions(place.work, std::filesystem::status(place.target, error).permissions(), error);
  } else if (errno != EEXIST) {
    throw io::io_error(errno, "cannot create a directory to build the new checkpoint in", place.work.native());
  }
}

}  // namespace

Saver::Saver(std::int64_t shard_index, std::int64_t shard_num, std::int64_t parallel, std::filesystem::path path)
    : shard_index_(static_cast<std::uint64_t>(shard_index)),
      shard_num_(static_cast<std::uint64_t>(shard_num)),
      parallel_(static_cast<unsigned>(parallel)),
      path_(std::move(path)) {
  sharded::check_path(path_);
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

void Saver::give_up(std::string_view why) const noexcept {
  if (shard_index_ == 0 || !sharded::is_attempt(options_.attempt)) return;
  try {
    io::FileOps& ops = options_.file_ops != nullptr ? *options_.file_ops : io::system_file_ops();
    const std::filesystem::path target = sharded::prepare_directory(path_, false, ops);
    const SavePlace place = sharded::place_of(target, options_, options_.attempt);
    make_building_site(place, ops);
    const ShardPosition shard{shard_index_, shard_num_, parallel_};
    Part(place, new_record(shard, options_, options_.attempt), options_, ops).withdraw(why);
  } catch (...) {
  }
}

void Saver::save(std::span<const WriteBlock> blocks) const try {
  io::FileOps& ops = options_.file_ops != nullptr ? *options_.file_ops : io::system_file_ops();
  const ShardPosition shard{shard_index_, shard_num_, parallel_};
  // Nothing of a checkpoint is touched when the blocks cannot be one.
  const auto plan = options_.layout == CheckpointLayout::kPlain ? sharded::plan_plain : sharded::plan_recis;
  std::vector<PlannedFile> files;
  try {
    files = plan(blocks, shard, options_.max_block_bytes);
  } catch (const std::exception& error) {
    give_up(error.what());
    throw;
  }
  if (!options_.attempt.empty()) sharded::check_attempt(options_.attempt);
  sharded::check_run(options_.run);
  std::uint64_t total = 0;
  for (const PlannedFile& file : files) total += file.nbytes;
  Meter meter(options_.progress, total);

  const std::filesystem::path target = sharded::prepare_directory(path_, options_.durable, ops);
  std::string attempt = options_.attempt;
  std::optional<sharded::HeldFile> lock;
  std::optional<sharded::HeldFile> token;
  if (shard_index_ == 0) {
    lock.emplace(sharded::lock_directory(target, ops));
    if (attempt.empty()) attempt = io::random_digits();
    sharded::remove_leftovers(target, attempt, ops);
  }
  sharded::refuse_existing(target, options_, ops);
  if (attempt.empty()) {
    const auto took_part = [&](const std::string& published) {
      return sharded::has_record(sharded::place_of(target, options_, published), published, shard_index_);
    };
    attempt =
        sharded::wait_for_attempt(target, options_.run, options_.timeout, took_part, [&] { meter.report(); }, ops);
  }
  const SavePlace place = sharded::place_of(target, options_, attempt);
  make_building_site(place, ops);
  Part part(place, new_record(shard, options_, attempt), options_, ops);
  if (shard_index_ == 0 && shard_num_ > 1 && options_.attempt.empty()) {
    token.emplace(sharded::publish_attempt(target, attempt, options_.run, ops));
  }
  try {
    part.record().files = write_files(place, files, attempt, shard_index_, options_, meter, ops);
    part.publish();
    if (shard_index_ == 0) {
      const auto watch = [&] { meter.report(); };
      const auto records = sharded::collect_records(place, part.record(), options_.timeout, watch, ops);
      // Nobody is waited for any more: a shard that comes now comes for the next save.
      token.reset();
      sharded::commit(place, records, options_, ops);
    }
  } catch (const std::exception& error) {
    part.withdraw(error.what());
    throw;
  }
  meter.report_end();
} catch (Error& error) {
  error.in_file(path_.native());
  throw;
} catch (const std::filesystem::filesystem_error& error) {
  throw io::io_error(error.code().value(), "cannot look into the directory of the checkpoint", path_.native());
}

}  // namespace weightstore
