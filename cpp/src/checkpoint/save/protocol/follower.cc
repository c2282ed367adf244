#include "checkpoint/save/protocol/follower.h"

#include <string>
#include <utility>

#include "checkpoint/save/protocol/checkpoint_directory.h"
#include "checkpoint/save/protocol/collect_records.h"
#include "checkpoint/save/protocol/shard_part.h"

namespace weightstore::checkpoint {
namespace {

// The save that a shard has joined.
struct JoinedSave {
  std::string attempt;
  std::string session;
};

// The caller has named the session: the shard only waits until shard 0 needs none of its earlier files.
JoinedSave join_named_save(const SaveContext& context, PendingSave& save, const std::function<void()>& watch) {
  const JoinedSave joined{save.expected.attempt, named_session(save.expected)};
  const ShardRecord own = new_record(context.shard, context.options, joined.attempt, joined.session);
  do_or_report(context, save,
               [&] { wait_for_earlier_attempt(save.directory, own, context.options.timeout, watch, context.ops); });
  return joined;
}

JoinedSave join_by_token(const SaveContext& context, PendingSave& save, const std::function<void()>& watch) {
  ExpectedSave& expected = save.expected;
  const auto [token, refusal] = do_or_report(context, save, [&] {
    return wait_for_token(save.directory, expected, context.options.timeout, watch, context.ops);
  });
  if (!refusal.empty()) {
    // The save of this token cannot succeed without this shard. Only the process of shard 0 that the shard belongs to
    // is told.
    if (expected.leader.empty() || expected.leader == token.process) {
      write_failure_to(context, save.directory, token, refusal);
    }
    throw Error(ErrorCode::kConflict, refusal);
  }
  expected.leader = token.process;
  if (!token.given) SaveHistory::current().set_leader(save.series, token.process);
  context.ops.reached("token joined");
  return {token.attempt, token.session};
}

// The session of shard 0 now: it may have begun the same attempt anew while this shard wrote its files.
std::string read_session_again(const SaveContext& context, const PendingSave& save,
                               const std::function<void()>& watch) {
  const auto [token, refusal] =
      wait_for_token(save.directory, save.expected, context.options.timeout, watch, context.ops);
  if (!refusal.empty()) throw Error(ErrorCode::kConflict, refusal);
  context.ops.reached("token read again");
  return token.session;
}

}  // namespace

void follow_save(const SaveContext& context, PendingSave& save, std::span<const PlannedFile> files,
                 io::ProgressMeter& meter) {
  const auto& [path, shard, options, ops] = context;
  const bool named = save.expected.names_session();
  const std::function<void()> watch = [&] { meter.report(); };
  do_or_report(context, save, [&, &ops = ops, &options = options] { refuse_existing(save.directory, options, ops); });
  const JoinedSave joined = named ? join_named_save(context, save, watch) : join_by_token(context, save, watch);
  const SaveDirectories directories = directories_of(save.directory, options, joined.attempt);
  do_or_report(context, save, [&, &ops = ops] { create_staging_directory(directories, ops); });
  ShardPart part(directories, new_record(shard, options, joined.attempt, joined.session), options, ops);
  try {
    part.write_files(files, meter);
    if (!named) part.set_session(read_session_again(context, save, watch));
    part.publish();
  } catch (const std::exception& error) {
    part.roll_back(error.what());
    throw;
  }
}

void write_failure_to(const SaveContext& context, const std::filesystem::path& directory, const Token& token,
                      std::string_view why) {
  const SaveDirectories directories = directories_of(directory, context.options, token.attempt);
  const ShardRecord record = new_record(context.shard, context.options, token.attempt, token.session);
  write_failure(directories, record, why, context.ops);
}

}  // namespace weightstore::checkpoint
