// No schedule of crashes, restarts, forks, retries, late and early shards commits parts of different saves; and without
// any one of its rules the protocol would.

#include "save_protocol_model.h"

#include <cstdio>

#include "check.h"

using namespace save_model;

namespace {

constexpr std::uint8_t kAllCommits = 15;  // both saves of both runs

const char* name_of(Naming naming) {
  return naming == Naming::kAttempt ? "attempt" : naming == Naming::kCount ? "count" : "attempt and run";
}

Exploration explored(const char* what, const World& world) {
  Exploration found = explore(world);
  constexpr const char* kRestarts[] = {"whole job", "single shard", "any time"};
  std::printf("  %-15s restart: %-12s %d shards, %-14s %9llu states%s\n", name_of(world.naming),
              kRestarts[static_cast<std::size_t>(world.restart)], world.shards, what,
              static_cast<unsigned long long>(found.states),
              found.mixture ? ", mixture"
              : found.lost  ? ", lost"
                            : "");
  return found;
}

void check_sound(const World& world) {
  const Exploration found = explored("all rules:", world);
  if (found.mixture) std::fprintf(stderr, "mixture: %s\n", to_string(*found.mixture).c_str());
  if (found.lost) std::fprintf(stderr, "lost: %s\n", to_string(*found.lost).c_str());
  CHECK(!found.mixture);
  CHECK(!found.lost);
  // The protocol is of use, too.
  CHECK_EQ(found.commits & kAllCommits, kAllCommits);
}

Exploration without(World world, bool Rules::* rule, const char* name) {
  world.rules.*rule = false;
  return explored((std::string("without ") + name + ":").c_str(), world);
}

}  // namespace

TEST(no_schedule_mixes_saves_with_an_attempt) {
  check_sound({Naming::kAttempt, Restart::kWhole, 2, {}});
  check_sound({Naming::kAttempt, Restart::kWhole, 3, {}});
  check_sound({Naming::kAttempt, Restart::kShard, 3, {}});
}

TEST(no_schedule_mixes_saves_that_are_counted) {
  check_sound({Naming::kCount, Restart::kWhole, 2, {}});
  check_sound({Naming::kCount, Restart::kWhole, 3, {}});
  check_sound({Naming::kCount, Restart::kShard, 3, {}});
}

TEST(no_schedule_mixes_saves_with_an_attempt_and_a_run) {
  check_sound({Naming::kRun, Restart::kAny, 2, {}});
  check_sound({Naming::kRun, Restart::kWhole, 3, {}});
}

TEST(every_rule_is_needed) {
  CHECK(without({Naming::kAttempt, Restart::kWhole, 2, {}}, &Rules::session, "session").mixture);
  CHECK(without({Naming::kAttempt, Restart::kShard, 2, {}}, &Rules::session, "session").mixture);
  CHECK(without({Naming::kAttempt, Restart::kWhole, 2, {}}, &Rules::random, "random").mixture);
  CHECK(without({Naming::kAttempt, Restart::kWhole, 2, {}}, &Rules::attempt, "attempt").mixture);
  CHECK(without({Naming::kCount, Restart::kWhole, 2, {}}, &Rules::count, "count").mixture);
  CHECK(without({Naming::kCount, Restart::kWhole, 2, {}}, &Rules::missed, "missed").mixture);
  CHECK(without({Naming::kCount, Restart::kShard, 2, {}}, &Rules::leader, "leader").mixture);
  CHECK(without({Naming::kCount, Restart::kShard, 2, {}}, &Rules::forget, "forget").mixture);
  CHECK(without({Naming::kRun, Restart::kAny, 2, {}}, &Rules::run, "run").mixture);
  CHECK(without({Naming::kRun, Restart::kWhole, 2, {}}, &Rules::earlier, "earlier").lost);
}

// The limit that docs/saver.md states: with an attempt alone, processes of two runs that live at once look the same.
TEST(two_living_runs_need_a_run) { CHECK(explored("all rules:", {Naming::kAttempt, Restart::kAny, 2, {}}).mixture); }

RUN_TESTS()
