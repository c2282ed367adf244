#include "checkpoint/save/protocol/leader.h"

#include <string>
#include <vector>

#include "checkpoint/save/protocol/checkpoint_directory.h"
#include "checkpoint/save/protocol/collect_records.h"
#include "checkpoint/save/protocol/commit.h"
#include "checkpoint/save/protocol/shard_part.h"
#include "checkpoint/save/protocol/stale_files.h"
#include "io/temporaries.h"

namespace weightstore::checkpoint {

void lead_save(const SaveContext& context, const PendingSave& save, std::span<const PlannedFile> files,
               io::ProgressMeter& meter) {
  const auto& [path, shard, options, ops] = context;
  const ExpectedSave& expected = save.expected;
  const std::string session = expected.names_session() ? named_session(expected) : io::random_digits();
  const std::string attempt = expected.attempt.empty() ? session : expected.attempt;
  remove_stale_files(save.directory, attempt, ops);
  refuse_existing(save.directory, options, ops);
  const SaveDirectories directories = directories_of(save.directory, options, attempt);
  create_staging_directory(directories, ops);
  ShardPart part(directories, new_record(shard, options, attempt, session), options, ops);
  std::optional<Lease> token;
  if (shard.count > 1 && !expected.names_session()) {
    const std::string& process = SaveHistory::current().process_id();
    const Token text{session,        attempt,        !expected.attempt.empty(), expected.run, process,
                     expected.count, expected.missed};
    token.emplace(publish_token(save.directory, text, ops));
    ops.reached("token published");
  }
  try {
    part.write_files(files, meter);
    part.publish();
    const std::vector<ShardRecord> records =
        collect_records(directories, part.record(), options.timeout, [&] { meter.report(); }, ops);
    ops.reached("records collected");
    token.reset();  // a shard that looks for a token now wants the next save
    commit(directories, records, options, ops);
  } catch (const std::exception& error) {
    part.roll_back(error.what());
    throw;
  }
}

}  // namespace weightstore::checkpoint
