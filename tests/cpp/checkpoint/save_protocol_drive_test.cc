// The library itself, driven through schedules of the model (save_protocol_model.h) on a real directory. After every
// action each process must be where the model says, and every checkpoint must have the parts that the model says.

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "check.h"
#include "checkpoint/save/process_memory.h"
#include "io/file_ops.h"
#include "save_protocol_model.h"
#include "saver_files.h"
#include "weightstore/error.h"

using namespace weightstore;
using namespace save_model;
using namespace saver_files;
using test_files::TempDir;

namespace {

constexpr auto kTimeout = std::chrono::hours(1);  // on the clock of PlayedOps, which a schedule moves

struct Crash {};  // no std::exception: nothing cleans up behind it

// The operating system as one process sees it. The process stops at every step that `stops_at` names, until the player
// lets it go on. A process that has crashed changes no file any more.
class PlayedOps final : public io::FileOps {
 public:
  explicit PlayedOps(std::set<std::string> stops_at) : stops_at_(std::move(stops_at)) {}

  // For the player: lets the process go on, and waits until it stops again or is idle.
  void go_on() {
    std::unique_lock lock(mutex_);
    running_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !running_; });
  }
  const std::string& stopped_at() const { return stopped_at_; }  // "" when idle
  void crash() { dead_ = true; }
  void pass_deadline() { later_ += 2 * kTimeout; }

  // For the process: waits until it may go on.
  void stop(const std::string& at) {
    std::unique_lock lock(mutex_);
    stopped_at_ = at;
    running_ = false;
    changed_.notify_all();
    changed_.wait(lock, [&] { return running_; });
    if (dead_) throw Crash{};
  }
  void wait_for_start() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_; });
  }
  void finish() {
    const std::lock_guard lock(mutex_);
    stopped_at_.clear();
    running_ = false;
    changed_.notify_all();
  }

  void reached(const char* step) override {
    if (stops_at_.contains(step)) stop(step);
  }
  void pause(std::chrono::milliseconds) override { stop("pause"); }
  std::chrono::steady_clock::time_point now() override { return FileOps::now() + later_; }

  int open(const char* path, int flags, mode_t mode) override { return dead() ? -1 : FileOps::open(path, flags, mode); }
  ssize_t pwrite(int fd, const void* data, std::size_t length, off_t offset) override {
    return dead() ? -1 : FileOps::pwrite(fd, data, length, offset);
  }
  int rename(const char* from, const char* to) override { return dead() ? -1 : FileOps::rename(from, to); }
  int unlink(const char* path) override { return dead() ? -1 : FileOps::unlink(path); }
  int mkdir(const char* path, mode_t mode) override { return dead() ? -1 : FileOps::mkdir(path, mode); }
  int rmdir(const char* path) override { return dead() ? -1 : FileOps::rmdir(path); }

 private:
  bool dead() {
    if (dead_) errno = EIO;
    return dead_;
  }

  const std::set<std::string> stops_at_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool running_ = false;
  std::string stopped_at_;
  std::atomic<bool> dead_ = false;
  std::chrono::hours later_{0};
};

float tag_of(int run, int save) { return static_cast<float>(run * 10 + save); }

std::set<std::string> stops_of(Naming naming, int shard) {
  if (shard == 0) {
    return {naming == Naming::kRun ? "data written" : "token published", "record written", "records collected"};
  }
  if (naming == Naming::kRun) return {"data written"};
  return {"token joined", "token read again"};
}

// A process that makes one save after another on a thread of its own.
class Player {
 public:
  Player(const World& world, const std::filesystem::path& path, int run, int shard)
      : world_(world), path_(path), run_(run), shard_(shard), ops_(stops_of(world.naming, shard)) {}
  ~Player() {
    if (thread_.joinable() && !idle()) crash();
  }
  Player(const Player&) = delete;

  void begin(int save) {
    if (thread_.joinable()) thread_.join();
    error_.clear();
    thread_ = std::jthread([this, save] { work(save); });
    ops_.go_on();
  }
  void go_on() { ops_.go_on(); }
  void pass_deadline() {
    ops_.pass_deadline();
    ops_.go_on();
  }
  void crash() {
    ops_.crash();
    if (!idle()) ops_.go_on();
    if (thread_.joinable()) thread_.join();
  }
  bool idle() const { return ops_.stopped_at().empty(); }
  const std::string& stopped_at() const { return ops_.stopped_at(); }
  const std::string& error() const { return error_; }

 private:
  void work(int save) {
    ops_.wait_for_start();
    const checkpoint::ScopedProcess scope(memory_);
    try {
      SaveOptions options;
      options.durable = false;
      options.timeout = kTimeout;
      options.file_ops = &ops_;
      if (world_.naming != Naming::kCount) options.attempt = std::to_string(save);
      if (world_.naming == Naming::kRun) options.run = "run " + std::to_string(run_);
      Saver saver(shard_, world_.shards, 1, path_);
      saver.configure(options);
      const auto part = static_cast<std::uint64_t>(shard_);
      const auto shards = static_cast<std::uint64_t>(world_.shards);
      const auto user = table("user", 1, part, shards, 1);
      user->insert(std::vector<std::int64_t>{static_cast<std::int64_t>(shard_slice(part, shards).begin)},
                   table_values::bytes_of(std::vector<float>{tag_of(run_, save)}));
      saver.save(saver.make_write_blocks(Tables{user}, {}));
    } catch (const std::exception& error) {
      error_ = error.what();
    } catch (const Crash&) {
      error_ = "crashed";
    }
    ops_.finish();
  }

  const World world_;
  const std::filesystem::path path_;
  const int run_;
  const int shard_;
  checkpoint::ProcessMemory memory_;
  PlayedOps ops_;
  std::string error_;
  std::jthread thread_;
};

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

RUN_TESTS()
