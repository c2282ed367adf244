#include "checkpoint/save/protocol/shard_part.h"

#include <cerrno>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/save/protocol/data_files.h"
#include "checkpoint/save_names.h"
#include "io/parallel.h"
#include "io/text_file.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {

ShardRecord new_record(const ShardPosition& shard, const SaveOptions& options, const std::string& attempt,
                       const std::string& session) {
  ShardRecord record;
  record.attempt = attempt;
  record.session = session;
  record.shard = shard.index;
  record.shard_num = shard.count;
  record.parallel = shard.parallel;
  record.layout = options.layout;
  return record;
}

void write_failure(const SaveDirectories& directories, ShardRecord record, std::string_view why, io::FileOps& ops) {
  record.files.clear();
  record.error = why;
  const std::filesystem::path path = directories.target / record_name(record.attempt, record.shard);
  io::write_text_file(path, encode_record(record), {false, true}, ops);
}

ShardPart::ShardPart(const SaveDirectories& directories, ShardRecord record, const SaveOptions& options,
                     io::FileOps& ops)
    : directories_(directories), record_(std::move(record)), options_(options), ops_(ops) {
  ops_.unlink(record_path().c_str());
  // A try that failed has left its record in the target.
  if (directories_.is_staged()) ops_.unlink((directories_.target / record_path().filename()).c_str());
}

void ShardPart::write_files(std::span<const PlannedFile> files, io::ProgressMeter& meter) {
  const char* prefix = options_.layout == CheckpointLayout::kPlain ? kPlainPrefix : kHiddenPrefix;
  const unsigned attempt_try = next_try(directories_.work, prefix, record_.attempt, record_.shard, ops_);
  const auto path_of = [&](const PlannedFile& file) {
    return directories_.work / data_name(prefix, record_.attempt, attempt_try, record_.shard, file.number);
  };
  std::vector<RecordedFile> written(files.size());
  try {
    io::parallel_for(
        files.size(), static_cast<unsigned>(files.size()),
        [&](std::size_t i, const io::Worker& worker) {
          const auto count = [&worker, counting = meter.counting(files[i].nbytes)](
                                 std::uint64_t done, std::uint64_t total, std::string_view name) {
            if (worker.stop.is_set()) {
              throw Error(ErrorCode::kCancelled, "another file of this save could not be written");
            }
            return counting(done, total, name);
          };
          written[i] = write_data_file(path_of(files[i]), files[i], options_, count, ops_);
        },
        [&] { meter.report(); });
  } catch (...) {
    for (const PlannedFile& file : files) ops_.unlink(path_of(file).c_str());
    throw;
  }
  ops_.reached("data written");
  record_.files = std::move(written);
}

void ShardPart::publish() {
  const std::string text = encode_record(record_);
  try {
    io::write_text_file(record_path(), text, {options_.durable, true}, ops_);
  } catch (const Error&) {
    published_ = is_in_place(text);
    throw;
  }
  published_ = true;
  ops_.reached("record written");
}

void ShardPart::roll_back(std::string_view why) noexcept {
  if (published_ && record_.shard != 0) return;
  try {
    // If the commit came through before it failed, the files belong to the checkpoint.
    const auto needed = checkpoint_files(directories_.work, ops_);
    for (const RecordedFile& file : record_.files) {
      if (needed && !needed->contains(file.name)) ops_.unlink((directories_.work / file.name).c_str());
    }
    ops_.unlink(record_path().c_str());
    if (record_.shard == 0) {
      if (directories_.is_staged()) ops_.rmdir(directories_.work.c_str());  // fails when other shards have files in it
      return;
    }
    write_failure(directories_, record_, why, ops_);
  } catch (...) {
  }
}

std::filesystem::path ShardPart::record_path() const {
  return directories_.work / record_name(record_.attempt, record_.shard);
}

// The write may fail after the record got its name, when the directory cannot be synced.
bool ShardPart::is_in_place(const std::string& text) const {
  try {
    return io::read_text_file(record_path(), kMaxIndexBytes, ops_) == text;
  } catch (const Error& error) {
    return error.os_errno() != ENOENT;
  }
}

}  // namespace weightstore::checkpoint
