// The library itself, driven through schedules of the model (save_protocol_model.h) on a real directory. After every
// action each process must be where the model says, and every checkpoint must have the parts that the model says.

#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "check.h"
#include "save_protocol_model.h"
#include "save_protocol_player.h"
#include "saver_files.h"

using namespace weightstore;
using namespace save_model;
using namespace save_player;
using namespace saver_files;
using test_files::TempDir;

namespace {

// Plays a schedule on the model and on the library at once.
class Play {
 public:
  explicit Play(const World& world) : world_(world), model_(world) {}

  const State& state() const { return state_; }
  std::uint64_t commits() const { return commits_; }

  void act(const Action& action) {
    const std::pair who(action.run, action.shard);
    const Process before = state_.processes[action.run][action.shard];
    const State old = state_;
    if (!model_.apply(state_, action)) return;  // not with these rules
    schedule_.push_back(action);
    auto& player = players_[who];
    switch (action.what) {
      case Do::kStart:
        player = std::make_unique<Player>(world_, dir_.path(), action.run + 1, action.shard);
        return;
      case Do::kStep:
        if (before.at == At::kBetween) {
          player->begin(before.save);
        } else {
          player->go_on();
        }
        break;
      case Do::kGiveUp:
        if (player->stopped_at() == "record written") player->go_on();  // to the first look, which sets the deadline
        if (player->stopped_at() == "pause") player->pass_deadline();
        break;
      case Do::kCrash:
        player->crash();
        return;
      case Do::kRetry:
      case Do::kNext:
        return;
    }
    const At now = state_.processes[action.run][action.shard].at;
    if (action.shard == 0 && before.at == At::kCollecting && now == At::kCollected) expect_parts(old, action.run);
    if (action.shard == 0 && before.at == At::kCollected) check_parts(action.run);
    check_place(*player, now, before.save);
  }

  std::string told() const { return to_string(schedule_); }

 private:
  void expect_parts(const State& collected, int run) {
    const std::uint8_t save = collected.processes[static_cast<std::size_t>(run)][0].save;
    std::vector<float> tags = {tag_of(run + 1, save)};
    const auto& row = collected.records[world_.naming == Naming::kCount ? 0 : save - 1U];
    for (int shard = 1; shard < world_.shards; ++shard) {
      const Record& record = row[static_cast<std::size_t>(shard) - 1];
      tags.push_back(tag_of(record.run, record.save));
    }
    expected_[run] = tags;
  }

  void check_parts(int run) {
    ++commits_;
    const auto user = table("user", 1, 0, 1);
    const Loader loader(dir_.path(), 1, {user}, {});
    loader.load(loader.default_load_info());
    std::vector<float> tags;
    for (const auto& [id, row] : rows_of(*user, 1)) tags.push_back(row[0]);
    require(tags == expected_[run], "the checkpoint has other parts than the model says");
  }

  void check_place(const Player& player, At at, int save) {
    const std::string found =
        player.idle() ? (player.error().empty() ? "saved" : "failed: " + player.error()) : player.stopped_at();
    const bool named = world_.naming == Naming::kRun;
    const auto is = [&](const char* text) { return found == text; };
    bool right = false;
    switch (at) {
      case At::kOpen:
        right = is(named ? "data written" : "token published");
        break;
      case At::kCollecting:
        right = is("record written") || is("pause");
        break;
      case At::kCollected:
        right = is("records collected");
        break;
      case At::kLooking:
      case At::kLookingAgain:
        right = is("pause");
        break;
      case At::kJoined:
        right = is(named ? "data written" : "token joined");
        break;
      case At::kAnswering:
        right = is("token read again");
        break;
      case At::kFailed:
        right = found.starts_with("failed");
        break;
      case At::kBetween:
        right = is("saved");
        break;
      case At::kDead:  // has made its last save
        right = is("saved") && save == kSaves;
        break;
      case At::kUnborn:
        break;
    }
    require(right, "the model is at " + std::to_string(static_cast<int>(at)) + ", the library: " + found);
  }

  void require(bool right, const std::string& what) const {
    if (right) return;
    std::fprintf(stderr, "after %s:\n%s\n", told().c_str(), what.c_str());
    CHECK(right);
  }

  const World world_;
  const Model model_;
  const TempDir dir_;
  State state_;
  Schedule schedule_;
  std::map<std::pair<std::uint8_t, std::uint8_t>, std::unique_ptr<Player>> players_;
  std::map<int, std::vector<float>> expected_;
  std::uint64_t commits_ = 0;
};

// Steps are common and crashes rare, so that many schedules get far.
Schedule random_schedule(const World& world, std::mt19937& random, std::size_t length) {
  const Model model(world);
  State state;
  Schedule schedule;
  while (schedule.size() < length) {
    std::vector<Action> choices;
    for (std::uint8_t run = 0; run < kRuns; ++run) {
      for (std::uint8_t shard = 0; shard < world.shards; ++shard) {
        const std::pair<Do, int> kWeights[] = {{Do::kStart, 8}, {Do::kStep, 12}, {Do::kGiveUp, 2},
                                               {Do::kCrash, 1}, {Do::kRetry, 4}, {Do::kNext, 4}};
        for (const auto& [what, weight] : kWeights) {
          State next = state;
          const Action action{what, run, shard};
          if (model.apply(next, action)) choices.insert(choices.end(), static_cast<std::size_t>(weight), action);
        }
      }
    }
    if (choices.empty()) break;
    schedule.push_back(choices[random() % choices.size()]);
    model.apply(state, schedule.back());
  }
  return schedule;
}

// Calls `use` for every schedule of this length.
void every_schedule(const World& world, std::size_t length, Schedule& schedule, const State& state,
                    const std::function<void(const Schedule&)>& use) {
  const Model model(world);
  const auto actions = model.actions(state);
  if (schedule.size() == length || actions.empty()) return use(schedule);
  for (const Action& action : actions) {
    State next = state;
    model.apply(next, action);
    schedule.push_back(action);
    every_schedule(world, length, schedule, next, use);
    schedule.pop_back();
  }
}

const World kWorlds[] = {
    {Naming::kAttempt, Restart::kWhole, 2, {}}, {Naming::kAttempt, Restart::kWhole, 3, {}},
    {Naming::kAttempt, Restart::kShard, 2, {}}, {Naming::kCount, Restart::kWhole, 2, {}},
    {Naming::kCount, Restart::kWhole, 3, {}},   {Naming::kCount, Restart::kShard, 2, {}},
    {Naming::kRun, Restart::kWhole, 2, {}},     {Naming::kRun, Restart::kWhole, 3, {}},
};

}  // namespace

// What would go wrong without one of the rules goes right with it.
TEST(schedules_that_need_a_rule) {
  const std::pair<World, bool Rules::*> kCases[] = {
      {{Naming::kAttempt, Restart::kWhole, 2, {}}, &Rules::session},
      {{Naming::kAttempt, Restart::kShard, 2, {}}, &Rules::session},
      {{Naming::kAttempt, Restart::kWhole, 2, {}}, &Rules::random},
      {{Naming::kAttempt, Restart::kWhole, 2, {}}, &Rules::attempt},
      {{Naming::kCount, Restart::kWhole, 2, {}}, &Rules::count},
      {{Naming::kCount, Restart::kWhole, 2, {}}, &Rules::missed},
      {{Naming::kCount, Restart::kShard, 2, {}}, &Rules::leader},
      {{Naming::kCount, Restart::kShard, 2, {}}, &Rules::forget},
      {{Naming::kRun, Restart::kAny, 2, {}}, &Rules::run},
      {{Naming::kRun, Restart::kWhole, 2, {}}, &Rules::earlier},
  };
  for (const auto& [world, rule] : kCases) {
    World without = world;
    without.rules.*rule = false;
    const Exploration found = explore(without);
    CHECK(found.mixture || found.lost);
    Play play(world);
    for (const Action& action : found.mixture ? *found.mixture : *found.lost) play.act(action);
  }
}

TEST(every_short_schedule) {
  std::uint64_t played = 0;
  for (const World& world : kWorlds) {
    if (world.shards != 2) continue;
    Schedule schedule;
    every_schedule(world, 5, schedule, {}, [&](const Schedule& all) {
      Play play(world);
      for (const Action& action : all) play.act(action);
      ++played;
    });
  }
  std::printf("  %llu schedules\n", static_cast<unsigned long long>(played));
  CHECK(played > 100);
}

TEST(random_schedules) {
  std::mt19937 random(20);
  std::uint64_t commits = 0;
  constexpr int kSchedules = 150;  // of every world
  for (const World& world : kWorlds) {
    for (int i = 0; i < kSchedules; ++i) {
      Play play(world);
      for (const Action& action : random_schedule(world, random, 60)) play.act(action);
      commits += play.commits();
    }
  }
  std::printf("  %d schedules, %llu checkpoints\n", kSchedules * static_cast<int>(std::size(kWorlds)),
              static_cast<unsigned long long>(commits));
  CHECK(commits > kSchedules);
}
