#pragma once

// The commit protocol of sharded saves as a state machine: what shards, their processes and the directory can be in,
// and every step that any of them may take next. Decisions are the library's own (decide_join); a rule is taken out by
// making the field that it compares equal.
//
// A job has two runs, each with a process for every shard, and each process makes two saves. Any process may die at any
// time, may be arbitrarily slow, may give up waiting, and may try a failed save once more.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace save_model {

inline constexpr int kRuns = 2;
inline constexpr int kMaxShards = 3;
inline constexpr int kSaves = 2;

enum class Naming : std::uint8_t {
  kAttempt,  // `attempt` is given: the number of the save, the same in both runs
  kCount,    // neither is given
  kRun,      // `attempt` and `run` are given
};

// When a process of run 2 may start.
enum class Restart : std::uint8_t {
  kWhole,  // when all processes of run 1 have ended
  kShard,  // when the process of the same shard in run 1 has ended
  kAny,    // at any time: processes of run 1 may live on
};

struct Rules {
  bool session = true;  // shard 0 uses only records of its session
  bool attempt = true;  // a shard joins only its attempt
  bool count = true;    // a shard joins only the save of its number
  bool missed = true;   // after a failed save no shard joins by number
  bool leader = true;   // a shard stays with the process of shard 0 that it has joined
  bool run = true;      // the session has the run in it
  bool random = true;   // forked processes make different sessions
  bool forget = true;   // a forked process does not get its parent's memory
  bool earlier = true;  // a shard waits until its earlier part is dealt with
};

struct World {
  Naming naming = Naming::kAttempt;
  Restart restart = Restart::kWhole;
  int shards = 2;
  Rules rules;
};

enum class At : std::uint8_t {
  kUnborn,
  kBetween,  // before the save `save`; all saves are done after the last
  kFailed,   // the save `save` has failed
  kDead,
  // Shard 0:
  kOpen,        // holds the lock; token published
  kCollecting,  // has written its own part
  kCollected,   // has all records
  // Other shards:
  kLooking,  // waits for the token, or for its earlier part to be dealt with
  kJoined,   // has joined a token; in Naming::kRun: may write its record
  kLookingAgain,
  kAnswering,  // has read the token again
};

struct Process {
  At at = At::kUnborn;
  std::uint8_t save = 1;
  std::uint8_t tries_left = 1;
  std::uint8_t calls = 0;    // of save()
  std::uint8_t id = 0;       // of its memory
  std::uint8_t count = 0;    // in its memory
  std::uint8_t missed = 0;   // in its memory: 1 after a failed save
  std::uint8_t leader = 0;   // in its memory: an id
  std::uint8_t joined = 0;   // in this save: the leader's id
  std::uint8_t session = 0;  // of shard 0; of others the one read last
  std::uint8_t attempt = 0;  // of the token that it has joined: names its record
  std::uint8_t leaders = 0;  // a bit for every process of shard 0 that it has really joined, for the verdict
};

struct PublishedToken {
  std::uint8_t session = 0;  // 0: there is no token
  std::uint8_t attempt = 0;
  std::uint8_t count = 0;
  std::uint8_t missed = 0;
  std::uint8_t process = 0;
  std::uint8_t run = 0;
};

struct Record {
  std::uint8_t session = 0;  // 0: there is no record
  std::uint8_t run = 0;      // run, save and count of the part
  std::uint8_t save = 0;
  std::uint8_t count = 0;
  std::uint8_t leaders = 0;
  std::uint8_t stale = 0;  // 1: written before shard 0 began the save that it is in now
  std::uint8_t error = 0;  // 1: says that the shard's part will not come
};

enum class Verdict : std::uint8_t { kGood, kMixture, kLost };

// Only bytes, so that states compare and hash as memory.
struct State {
  std::array<std::array<Process, kMaxShards>, kRuns> processes;
  PublishedToken token;
  std::uint8_t lock = 0;  // 1 + run of the holder
  std::uint8_t next_session = 1;
  std::array<std::array<Record, kMaxShards - 1>, kSaves> records;  // by save (Naming::kCount: one row) and shard
  Verdict verdict = Verdict::kGood;

  std::string_view bytes() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }
};
static_assert(sizeof(State) == sizeof(Process) * kRuns * kMaxShards + sizeof(PublishedToken) + 2 +
                                   sizeof(Record) * kSaves * (kMaxShards - 1) + 1);

enum class Do : std::uint8_t {
  kStart,   // the process begins to exist
  kStep,    // goes on to the next point at which others may come between
  kGiveUp,  // a deadline passes
  kCrash,
  kRetry,  // a failed save is made again
  kNext,   // a failed save is left
};

struct Action {
  Do what = Do::kStep;
  std::uint8_t run = 0;  // 0 or 1
  std::uint8_t shard = 0;
};
using Schedule = std::vector<Action>;

class Model {
 public:
  explicit Model(const World& world) : world_(world) {}

  // Every action that changes something.
  std::vector<Action> actions(const State& state) const;
  // False when the action is impossible in this state. A step that only looks, and finds that it must wait, is possible
  // and changes nothing.
  bool apply(State& state, const Action& action) const;

 private:
  bool change(State& state, const Action& action) const;
  void open(State& state, int run) const;
  bool lead(State& state, int run) const;
  bool follow(State& state, int run, int shard) const;
  void look(State& state, int run, int shard) const;
  bool collected(const State& state, int run) const;
  void judge(State& state, int run) const;
  void let_go(State& state) const;
  void end(State& state, int run, int shard, bool failed) const;
  bool may_start(const State& state, int run, int shard) const;
  Record& record_of(State& state, std::uint8_t save, int shard) const {
    return state.records[world_.naming == Naming::kCount ? 0 : save - 1U][static_cast<std::size_t>(shard) - 1];
  }
  bool fits(const Record& record, const Process& leader, int run) const;
  // Makes states equal that differ only in what nobody asks for any more.
  void forget_details(State& state) const;

  World world_;
};

struct Exploration {
  std::uint64_t states = 0;
  std::uint8_t commits = 0;         // (run, save) pairs that some schedule commits
  std::optional<Schedule> mixture;  // the shortest schedule to one
  std::optional<Schedule> lost;     // the shortest schedule after which a part is deleted whose shard was told "saved"
};

// Visits every state that can be reached, or all until the first bad one.
Exploration explore(const World& world);

std::string to_string(const Schedule& schedule);

}  // namespace save_model
