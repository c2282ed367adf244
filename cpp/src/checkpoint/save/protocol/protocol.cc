// How the shards of a job save one checkpoint together.
//
// THE RULE. It keeps the parts of different saves apart:
//
//   Every save has a session. Shard 0 uses the part of a shard only if the record of the part names the session of the
//   save that shard 0 is in. A shard learns the session only after its own save() was called, and only for the save
//   that its caller wants to make.
//
// So clocks and process start times do not matter, and shard 0 never uses files that an earlier save or run left
// behind: their records name other sessions.
//
// Where the session comes from:
//
//  a. The caller gives both `attempt` and `run`, and guarantees that the pair names one save. The pair is the session.
//     A process group works like this: its ranks agree on a random pair for every save.
//  b. Otherwise shard 0 makes a random session in every call of save(), and publishes it in a token. The random bits
//     come from the kernel, so that forked processes never make the same session. The other shards wait for the token.
//
// Which token a shard joins (decide_join() in token.cc):
//
//  c. The token must come from a living shard 0 of the same run. If a shard joined a dead one, it would report success
//     though nobody uses its part; parts could not get mixed.
//  d. With an attempt: the token must name this attempt. The caller gives every save of a run its own attempt. After a
//     shard has joined, it stays with that process of shard 0 until its save() returns.
//  e. Without an attempt: the save of shard 0 and the save of the shard must have the same number, which both processes
//     count from their start or fork. The process of shard 0 must be the one that the shard has joined before. All
//     earlier saves of both must have succeeded, because after a failure one program tries again and another goes on. A
//     shard that is ahead waits. In all other cases the shard cannot know which save its part belongs to: it refuses,
//     and advises to pass an attempt.
//
// THE STEPS. All shards do 1 to 4, as far as the steps are theirs; shard 0 alone does 5 to 9.
//
//  1. Shard 0 takes the lock of the directory, which keeps other saves out. It removes the stale files of dead saves,
//     but not the files of its own attempt.
//  2. Shard 0 publishes the token of the save, and the other shards wait for the token. In case a there is no token; a
//     shard waits until shard 0 has ended the previous attempt that the shard took part in.
//  3. Every shard writes and syncs its data files, under names that have the attempt in them and that no other file
//     has.
//  4. Every shard except 0 reads the token again, because shard 0 may have begun the same attempt anew meanwhile. Then
//     every shard writes its record: session, attempt, blocks, and the files with their sizes and the checksums of
//     their headers. A shard that fails writes the reason instead, always to the directory of the checkpoint, even if
//     the new checkpoint is staged (8).
//  5. Shard 0 waits for a record of its session from every shard. A record counts when every file that it names is
//     there and whole. When shard 0 has all records, it removes the token.
//  6. Shard 0 checks that the records fit together. It refuses, for example, two parts with the same bucket.
//  7. plain: shard 0 replaces the index atomically. This is the commit: a load finds the old checkpoint before it and
//     the new one after it.
//     recis: shard 0 writes the final names of the data files to a journal, renames the files, writes tensorkey.json
//     and the description, and the index last. This is the commit.
//  8. recis, over an existing checkpoint: steps 3 to 7 happened in a staging directory beside the checkpoint. Shard 0
//     exchanges the two directories. This is the commit.
//  9. Shard 0 removes the records, the journal and the files of the replaced checkpoint.
//
// A crash before the commit leaves the old checkpoint as it was, and stale files that the next save removes (by their
// names, or by the journal). A crash after the commit leaves the new checkpoint, and stale files until the next save.
//
// Steps 1, 2, 5: leader.cc. Steps 2 to 4 of the other shards: follower.cc. Steps 3 and 4: shard_part.cc. Step 5:
// collect_records.cc. Steps 6 to 9: commit.cc. tests/cpp/support/save_protocol_model.h is a model of the rule.

#include "checkpoint/save/protocol/protocol.h"

#include <algorithm>
#include <string>

#include "checkpoint/save/protocol/checkpoint_directory.h"
#include "checkpoint/save/protocol/follower.h"
#include "checkpoint/save/protocol/leader.h"
#include "checkpoint/save_names.h"
#include "io/paths.h"

namespace weightstore::checkpoint {
namespace {

// How long a shard that fails early waits for a shard 0 that it can report to.
constexpr std::chrono::milliseconds kReportTimeout{2000};

}  // namespace

std::shared_ptr<PendingSave> new_save(const SaveContext& context) {
  const SaveOptions& options = context.options;
  if (!options.attempt.empty()) check_attempt(options.attempt);
  check_run(options.run);
  auto save = std::make_shared<PendingSave>();
  save->expected.attempt = options.attempt;
  save->expected.run = options.run;
  if (options.attempt.empty() && context.shard.count > 1) {
    const std::filesystem::path directory = io::weakly_canonical_path(context.path, context.ops);
    save->series = {directory.native(), options.run, context.shard.index, context.shard.count};
    const SaveHistory::Past past = SaveHistory::current().begin(save->series);
    save->expected.count = past.saves + 1;
    save->expected.missed = past.missed;
    save->expected.leader = past.leader;
  }
  return save;
}

void open_save(const SaveContext& context, PendingSave& save) {
  const std::filesystem::path directory = create_directory(context.path, context.options.durable, context.ops);
  if (context.shard.index == 0) save.lock.emplace(Lease::acquire(directory / kLock, context.ops));
  save.directory = directory;
}

void run_save(const SaveContext& context, PendingSave& save, std::span<const PlannedFile> files) {
  std::uint64_t total = 0;
  for (const PlannedFile& file : files) total += file.nbytes;
  io::ProgressMeter meter(context.options.progress, total, "saving was cancelled");
  if (context.shard.index == 0) {
    lead_save(context, save, files, meter);
  } else {
    follow_save(context, save, files, meter);
  }
  if (save.expected.count > 0) SaveHistory::current().succeeded(save.series);
  save.lock.reset();
  meter.report_finished();
}

void report_failure(const SaveContext& context, PendingSave& save, std::string_view why) noexcept {
  if (context.shard.index == 0) return;
  try {
    const auto& [path, shard, options, ops] = context;
    const std::filesystem::path directory =
        save.directory.empty() ? create_directory(path, false, ops) : save.directory;
    Token token;
    token.attempt = save.expected.attempt;
    token.session = named_session(save.expected);
    if (!save.expected.names_session()) {
      const auto timeout = std::min(options.timeout, kReportTimeout);
      const FoundToken found = wait_for_token(directory, save.expected, timeout, {}, ops);
      if (!found.refusal.empty()) return;
      token = found.token;
    }
    write_failure_to(context, directory, token, why);
  } catch (...) {
  }
}

}  // namespace weightstore::checkpoint
