#include "checkpoint/save/shard_save.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/attempt.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/save/commit.h"
#include "checkpoint/save/data_files.h"
#include "checkpoint/save/leftovers.h"
#include "io/atomic_file.h"
#include "io/checked_io.h"
#include "io/parallel.h"
#include "io/text_file.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

// How long a shard that fails early waits for a shard 0 that it can tell.
constexpr std::chrono::milliseconds kPatienceToTell{2000};

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
  const char* prefix = options.layout == CheckpointLayout::kPlain ? kPlainPrefix : kHiddenPrefix;
  const unsigned attempt_try = next_try(place.work, prefix, attempt, shard);
  std::vector<RecordedFile> records(files.size());
  const auto path_of = [&](const PlannedFile& file) {
    return place.work / data_name(prefix, attempt, attempt_try, shard, file.number);
  };
  try {
    io::run_parallel(
        static_cast<unsigned>(files.size()),
        [&](unsigned worker, const io::StopFlag& stop) {
          const auto moved = [&](std::uint64_t bytes, std::string_view name) {
            if (stop.is_set()) throw Error(ErrorCode::kCancelled, "another file of this save could not be written");
            meter.moved(bytes, name);
          };
          records[worker] = write_data_file(path_of(files[worker]), files[worker], options, moved, ops);
        },
        [&] { meter.report(); });
  } catch (...) {
    for (const PlannedFile& file : files) ops.unlink(path_of(file).c_str());
    throw;
  }
  ops.reached("data written");
  return records;
}

// Tells shard 0 why it need not wait for this shard. Always in the directory of the checkpoint: whether shard 0 builds
// the checkpoint beside it depends on shard 0's options, and this shard may fail because its own differ.
void write_failure(const SavePlace& place, ShardRecord record, std::string_view why, io::FileOps& ops) {
  record.files.clear();
  record.error = why;
  const std::filesystem::path path = place.target / record_name(record.attempt, record.shard);
  io::write_text_file(path, encode_record(record), {false, true}, ops);
}

// The files and the record of a shard, which are removed when the save fails.
class Part {
 public:
  Part(const SavePlace& place, ShardRecord record, const SaveOptions& options, io::FileOps& ops)
      : place_(place), record_(std::move(record)), options_(options), ops_(ops) {
    // Of an earlier try under the same attempt: its record, or why it failed.
    ops_.unlink(path().c_str());
    if (place_.swaps()) ops_.unlink((place_.target / path().filename()).c_str());
  }

  ShardRecord& record() { return record_; }

  void publish() {
    const std::string text = encode_record(record_);
    try {
      io::write_text_file(path(), text, {options_.durable, true}, ops_);
    } catch (const Error&) {
      published_ = is_in_place(text);
      throw;
    }
    published_ = true;
    ops_.reached("record written");
  }

  // Removes the files, and tells shard 0 why it need not wait. Only shard 0 may take back a record that is in place:
  // to the others the files behind it belong to shard 0, which may be committing them.
  void withdraw(std::string_view why) noexcept {
    if (published_ && record_.shard != 0) return;
    try {
      // Should the commit itself have come through, they are part of the checkpoint.
      const auto needed = checkpoint_files(place_.work, ops_);
      for (const RecordedFile& file : record_.files) {
        if (needed && !needed->contains(file.name)) ops_.unlink((place_.work / file.name).c_str());
      }
      ops_.unlink(path().c_str());
      if (record_.shard == 0) {
        if (place_.swaps()) ops_.rmdir(place_.work.c_str());  // unless others have something in it
        return;
      }
      write_failure(place_, record_, why, ops_);
    } catch (...) {
    }
  }

 private:
  std::filesystem::path path() const { return place_.work / record_name(record_.attempt, record_.shard); }

  // Writing may fail after the record got its name: when the directory cannot be synced.
  bool is_in_place(const std::string& text) const {
    try {
      return io::read_text_file(path(), kMaxIndexBytes, ops_) == text;
    } catch (const Error& error) {
      return error.os_errno() != ENOENT;
    }
  }

  const SavePlace& place_;
  ShardRecord record_;
  const SaveOptions& options_;
  io::FileOps& ops_;
  bool published_ = false;
};

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

void lead(const ShardJob& job, SaveTurn& turn, std::span<const PlannedFile> files, Meter& meter) {
  const auto& [path, shard, options, ops] = job;
  const SaveClaim& claim = turn.claim;
  const std::string session = claim.names_session() ? named_session(claim) : io::random_digits();
  const std::string attempt = claim.attempt.empty() ? session : claim.attempt;
  remove_leftovers(turn.directory, attempt, ops);
  refuse_existing(turn.directory, options, ops);
  const SavePlace place = place_of(turn.directory, options, attempt);
  make_building_site(place, ops);
  Part part(place, new_record(shard, options, attempt, session), options, ops);
  std::optional<HeldFile> token;
  if (shard.count > 1 && !claim.names_session()) {
    const std::string& process = ProcessMemory::current().id();
    const Token published{session, attempt, !claim.attempt.empty(), claim.run, process, claim.count, claim.missed};
    token.emplace(publish_token(turn.directory, published, ops));
    ops.reached("token published");
  }
  try {
    part.record().files = write_files(place, files, attempt, shard.index, options, meter, ops);
    part.publish();
    const auto watch = [&] { meter.report(); };
    const auto records = collect_records(place, part.record(), options.timeout, watch, ops);
    ops.reached("records collected");
    token.reset();  // a shard that comes now comes for the next save
    commit(place, records, options, ops);
  } catch (const std::exception& error) {
    part.withdraw(error.what());
    throw;
  }
}

// Tells shard 0, in the save of this token, that this shard's part will not come.
void report_failure(const ShardJob& job, const std::filesystem::path& directory, const Token& token,
                    std::string_view why) {
  const SavePlace place = place_of(directory, job.options, token.attempt);
  write_failure(place, new_record(job.shard, job.options, token.attempt, token.session), why, job.ops);
}

void follow(const ShardJob& job, SaveTurn& turn, std::span<const PlannedFile> files, Meter& meter) {
  const ShardPosition& shard = job.shard;
  const SaveOptions& options = job.options;
  io::FileOps& ops = job.ops;
  SaveClaim& claim = turn.claim;
  const auto watch = [&] { meter.report(); };
  do_or_tell(job, turn, [&] { refuse_existing(turn.directory, options, ops); });
  std::string attempt = claim.attempt;
  std::string session = named_session(claim);
  if (claim.names_session()) {
    const ShardRecord own = new_record(shard, options, attempt, session);
    do_or_tell(job, turn, [&] { wait_for_earlier_part(turn.directory, own, options.timeout, watch, ops); });
  } else {
    const auto [token, refusal] =
        do_or_tell(job, turn, [&] { return wait_for_token(turn.directory, claim, options.timeout, watch, ops); });
    if (!refusal.empty()) {
      // Without this shard the save cannot succeed. Processes of another run have no say in it.
      if (claim.leader.empty() || claim.leader == token.process) report_failure(job, turn.directory, token, refusal);
      throw Error(ErrorCode::kConflict, refusal);
    }
    attempt = token.attempt;
    session = token.session;
    claim.leader = token.process;
    if (!token.given) ProcessMemory::current().set_leader(turn.place, token.process);
    ops.reached("token joined");
  }
  const SavePlace place = place_of(turn.directory, options, attempt);
  do_or_tell(job, turn, [&] { make_building_site(place, ops); });
  Part part(place, new_record(shard, options, attempt, session), options, ops);
  try {
    part.record().files = write_files(place, files, attempt, shard.index, options, meter, ops);
    if (!claim.names_session()) {
      const auto [token, refusal] = wait_for_token(turn.directory, claim, options.timeout, watch, ops);
      if (!refusal.empty()) throw Error(ErrorCode::kConflict, refusal);
      part.record().session = token.session;
      ops.reached("token read again");
    }
    part.publish();
  } catch (const std::exception& error) {
    part.withdraw(error.what());
    throw;
  }
}

// The same text for all paths that lead to a directory, whether it is there or not.
std::string one_spelling(const std::filesystem::path& directory) {
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(std::filesystem::absolute(directory));
  return (resolved.has_filename() ? resolved : resolved.parent_path()).native();
}

}  // namespace

std::shared_ptr<SaveTurn> new_turn(const ShardJob& job) {
  const SaveOptions& options = job.options;
  if (!options.attempt.empty()) check_attempt(options.attempt);
  check_run(options.run);
  auto turn = std::make_shared<SaveTurn>();
  turn->claim.attempt = options.attempt;
  turn->claim.run = options.run;
  if (options.attempt.empty() && job.shard.count > 1) {
    ProcessMemory& memory = ProcessMemory::current();
    turn->place = {one_spelling(job.path), options.run, job.shard.index, job.shard.count};
    const ProcessMemory::Before before = memory.begin(turn->place);
    turn->claim.count = before.saves + 1;
    turn->claim.missed = before.missed;
    turn->claim.leader = before.leader;
  }
  return turn;
}

void open_turn(const ShardJob& job, SaveTurn& turn) {
  const std::filesystem::path directory = prepare_directory(job.path, job.options.durable, job.ops);
  if (job.shard.index == 0) turn.lock.emplace(HeldFile::lock(directory / kLock, job.ops));
  turn.directory = directory;
}

void save_part(const ShardJob& job, SaveTurn& turn, std::span<const PlannedFile> files) {
  std::uint64_t total = 0;
  for (const PlannedFile& file : files) total += file.nbytes;
  Meter meter(job.options.progress, total);
  if (job.shard.index == 0) {
    lead(job, turn, files, meter);
  } else {
    follow(job, turn, files, meter);
  }
  if (turn.claim.count > 0) ProcessMemory::current().succeeded(turn.place);
  turn.lock.reset();
  meter.report_end();
}

void tell_failure(const ShardJob& job, SaveTurn& turn, std::string_view why) noexcept {
  if (job.shard.index == 0) return;
  try {
    const auto& [path, shard, options, ops] = job;
    const std::filesystem::path directory =
        turn.directory.empty() ? prepare_directory(path, false, ops) : turn.directory;
    Token token;
    token.attempt = turn.claim.attempt;
    token.session = named_session(turn.claim);
    if (!turn.claim.names_session()) {
      const auto patience = std::min(options.timeout, kPatienceToTell);
      const auto answered = wait_for_token(directory, turn.claim, patience, {}, ops);
      if (!answered.refusal.empty()) return;
      token = answered.token;
    }
    report_failure(job, directory, token, why);
  } catch (...) {
  }
}

}  // namespace weightstore::checkpoint
