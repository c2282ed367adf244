#pragma once

// The commit protocol of sharded saves as a state machine: what shards, their processes and the directory can be in,
// and every step that any of them may take next. Decisions are the library's own (answer_to); a rule is taken out by
// making the field that it compares equal.
//
// A job has two runs, each with a process for every shard, and each process makes two saves. Any process may die at any
// time, may be arbitrarily slow, may give up waiting, and may try a failed save once more.

#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/save/session.h"

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

// ---- implementation -------------------------------------------------------------------------------------------------

inline bool is_running(At at) { return at != At::kUnborn && at != At::kDead; }
inline bool has_ended(const Process& process) {
  return process.at == At::kDead || (process.at == At::kBetween && process.save > kSaves);
}

inline bool Model::may_start(const State& state, int run, int shard) const {
  if (run == 0 || world_.restart == Restart::kAny) return true;
  const auto& first = state.processes[0];
  if (world_.restart == Restart::kShard) return has_ended(first[static_cast<std::size_t>(shard)]);
  for (int s = 0; s < world_.shards; ++s) {
    if (!has_ended(first[static_cast<std::size_t>(s)])) return false;
  }
  return true;
}

inline void Model::end(State& state, int run, int shard, bool failed) const {
  Process& me = state.processes[static_cast<std::size_t>(run)][static_cast<std::size_t>(shard)];
  me.joined = me.session = me.attempt = 0;
  me.at = failed ? At::kFailed : At::kBetween;
  if (failed) me.missed = 1;
  if (!failed) ++me.save;
}

// Shard 0: lock, remove the files of other attempts, publish the token.
inline void Model::open(State& state, int run) const {
  Process& me = state.processes[static_cast<std::size_t>(run)][0];
  ++me.calls;
  ++me.count;
  if (state.lock != 0) return end(state, run, 0, true);
  state.lock = static_cast<std::uint8_t>(run + 1);
  if (world_.naming == Naming::kRun) {
    me.session = static_cast<std::uint8_t>(run + 1);
  } else {
    me.session = world_.rules.random ? state.next_session++ : me.calls;
  }
  for (int save = 1; save <= kSaves; ++save) {
    for (int shard = 1; shard < world_.shards; ++shard) {
      Record& record = state.records[static_cast<std::size_t>(save) - 1][static_cast<std::size_t>(shard) - 1];
      if (world_.naming != Naming::kCount && save == me.save) {
        record.stale = record.session != 0 ? 1 : 0;
        continue;
      }
      const Process& owner = state.processes[static_cast<std::size_t>(run)][static_cast<std::size_t>(shard)];
      const bool told = record.session != 0 && record.run == run + 1 && owner.missed == 0;
      if (world_.naming == Naming::kRun && world_.restart != Restart::kAny && told && record.save > me.save)
        state.verdict = Verdict::kLost;
      record = {};
    }
  }
  if (world_.naming != Naming::kRun) {
    state.token = {me.session, me.save, me.count, me.missed, me.id, static_cast<std::uint8_t>(run + 1)};
  }
  me.at = At::kOpen;
}

inline bool Model::fits(const Record& record, const Process& leader, int run) const {
  if (record.session == 0) return false;
  if (world_.naming == Naming::kRun) return !world_.rules.run || record.session == run + 1;
  return !world_.rules.session || record.session == leader.session;
}

inline bool Model::collected(const State& state, int run) const {
  const Process& me = state.processes[static_cast<std::size_t>(run)][0];
  for (int shard = 1; shard < world_.shards; ++shard) {
    State& mutable_state = const_cast<State&>(state);
    if (!fits(record_of(mutable_state, me.save, shard), me, run)) return false;
  }
  return true;
}

// Whether the records that shard 0 has collected may be one checkpoint.
inline void Model::judge(State& state, int run) const {
  const Process& me = state.processes[static_cast<std::size_t>(run)][0];
  for (int shard = 1; shard < world_.shards; ++shard) {
    const Record& record = record_of(state, me.save, shard);
    bool bad = false;
    if (world_.restart != Restart::kShard) {
      // The part is of another run or of another save.
      bad = record.run != run + 1 || record.save != me.save;
    } else if (world_.naming == Naming::kAttempt) {
      // The part is of another save, or its process was done with it before this save began.
      bad = record.save != me.save || record.stale != 0;
    } else {
      // The part has another number, or its process has saved with another shard 0 before.
      bad = record.count != me.count || record.leaders != 1 << run;
    }
    if (bad) state.verdict = Verdict::kMixture;
  }
}

// Shard 0's lock and token are gone.
inline void Model::let_go(State& state) const {
  state.lock = 0;
  if (world_.naming != Naming::kRun) state.token = {};
}

inline bool Model::lead(State& state, int run) const {
  Process& me = state.processes[static_cast<std::size_t>(run)][0];
  switch (me.at) {
    case At::kBetween:
      if (me.save > kSaves) return false;
      open(state, run);
      return true;
    case At::kOpen:
      me.at = At::kCollecting;
      return true;
    case At::kCollecting:
      for (int shard = 1; shard < world_.shards; ++shard) {
        Record& record = record_of(state, me.save, shard);
        if (record.error == 0 || !fits(record, me, run)) continue;
        record = {};
        let_go(state);
        end(state, run, 0, true);
        return true;
      }
      if (!collected(state, run)) return true;
      judge(state, run);
      me.at = At::kCollected;
      return true;
    case At::kCollected:
      for (int shard = 1; shard < world_.shards; ++shard) record_of(state, me.save, shard) = {};
      let_go(state);
      end(state, run, 0, false);
      return true;
    default:
      return false;
  }
}

// Looks at the token.
inline void Model::look(State& state, int run, int shard) const {
  using weightstore::checkpoint::Answer;
  Process& me = state.processes[static_cast<std::size_t>(run)][static_cast<std::size_t>(shard)];
  const PublishedToken& found = state.token;
  if (found.session == 0) return;
  const bool given = world_.naming == Naming::kAttempt;
  const Rules& rules = world_.rules;
  const auto text = [](std::uint8_t n) { return n == 0 ? std::string() : std::to_string(n); };
  weightstore::checkpoint::Token token{text(found.session), text(found.attempt), given,       "",
                                       text(found.process), found.count,         found.missed};
  weightstore::checkpoint::SaveClaim claim{given ? text(me.save) : "", "", me.count, me.missed,
                                           text(me.joined != 0 ? me.joined
                                                : given        ? std::uint8_t{0}
                                                               : me.leader)};
  if (!rules.attempt && given) token.attempt = claim.attempt;
  if (!rules.count) token.count = claim.count;
  if (!rules.missed) token.missed = claim.missed = 0;
  if (!rules.leader) claim.leader.clear();
  const Answer answer = answer_to(token, claim);
  if (answer == Answer::kWait) return;
  if (answer == Answer::kRefuse) {
    if (me.at == At::kLooking && (claim.leader.empty() || claim.leader == token.process)) {
      record_of(state, me.save, shard) = {found.session, 0, 0, 0, 0, 0, 1};
    }
    return end(state, run, shard, true);
  }
  me.session = found.session;
  if (me.at == At::kLooking) me.attempt = given ? found.attempt : me.save;
  me.joined = found.process;
  if (!given) me.leader = found.process;
  me.leaders = static_cast<std::uint8_t>(me.leaders | 1 << (found.run - 1));
  me.at = me.at == At::kLooking ? At::kJoined : At::kAnswering;
}

inline bool Model::follow(State& state, int run, int shard) const {
  Process& me = state.processes[static_cast<std::size_t>(run)][static_cast<std::size_t>(shard)];
  const bool named = world_.naming == Naming::kRun;
  const auto earlier_part = [&] {
    for (int save = 1; save <= kSaves; ++save) {
      const Record& record = record_of(state, static_cast<std::uint8_t>(save), shard);
      if (save != me.save && record.session == run + 1) return true;
    }
    return false;
  };
  switch (me.at) {
    case At::kBetween:
      if (me.save > kSaves) return false;
      ++me.calls;
      ++me.count;
      me.at = At::kLooking;
      [[fallthrough]];
    case At::kLooking:
      if (!named) {
        look(state, run, shard);
      } else if (!world_.rules.earlier || !earlier_part()) {
        me.at = At::kJoined;
        me.attempt = me.save;
        record_of(state, me.attempt, shard) = {};
      }
      return true;
    case At::kJoined:
      if (!named) {
        if (world_.naming != Naming::kCount) record_of(state, me.attempt, shard) = {};
        me.at = At::kLookingAgain;
        look(state, run, shard);
        return true;
      }
      me.session = static_cast<std::uint8_t>(run + 1);
      [[fallthrough]];
    case At::kAnswering:
      record_of(state, me.attempt, shard) = {
          me.session, static_cast<std::uint8_t>(run + 1), me.save, me.count, me.leaders, 0, 0};
      end(state, run, shard, false);
      return true;
    case At::kLookingAgain:
      look(state, run, shard);
      return true;
    default:
      return false;
  }
}

inline void Model::forget_details(State& state) const {
  for (auto& processes : state.processes) {
    for (Process& process : processes) {
      if (has_ended(process)) {
        Process ended;
        ended.at = At::kDead;
        if (!world_.rules.forget) {
          ended.id = process.id;
          ended.count = process.count;
          ended.leader = process.leader;
          ended.missed = process.missed;
        }
        process = ended;
      }
      if (world_.rules.random) process.calls = 0;
      if (world_.naming != Naming::kCount) process.count = process.leaders = 0;
      if (world_.naming == Naming::kAttempt) process.missed = 0;
    }
  }
  for (auto& row : state.records) {
    for (Record& record : row) {
      if (world_.naming != Naming::kCount) record.count = record.leaders = 0;
      if (world_.naming != Naming::kAttempt || world_.restart != Restart::kShard) record.stale = 0;
    }
  }
  if (world_.naming == Naming::kRun || !world_.rules.random) return;
  // Sessions are random: only which of them are equal matters.
  std::array<std::uint8_t, 256> numbers{};
  std::uint8_t last = 0;
  const auto renumber = [&](std::uint8_t& session) {
    if (session == 0) return;
    if (numbers[session] == 0) numbers[session] = ++last;
    session = numbers[session];
  };
  renumber(state.token.session);
  for (auto& processes : state.processes) {
    for (Process& process : processes) renumber(process.session);
  }
  for (auto& row : state.records) {
    for (Record& record : row) renumber(record.session);
  }
  state.next_session = static_cast<std::uint8_t>(last + 1);
}

inline bool Model::apply(State& state, const Action& action) const {
  const bool done = change(state, action);
  if (done) forget_details(state);
  return done;
}

inline bool Model::change(State& state, const Action& action) const {
  const int run = action.run;
  const int shard = action.shard;
  Process& me = state.processes[static_cast<std::size_t>(run)][static_cast<std::size_t>(shard)];
  switch (action.what) {
    case Do::kStart: {
      if (me.at != At::kUnborn || !may_start(state, run, shard)) return false;
      const Process& parent = state.processes[0][static_cast<std::size_t>(shard)];
      me.at = At::kBetween;
      me.id = static_cast<std::uint8_t>(1 + run * kMaxShards + shard);
      if (run == 1 && !world_.rules.forget && parent.at != At::kUnborn) {
        me.id = parent.id;
        me.count = parent.count;
        me.leader = parent.leader;
        me.missed = parent.missed;
      }
      return true;
    }
    case Do::kStep:
      return is_running(me.at) && (shard == 0 ? lead(state, run) : follow(state, run, shard));
    case Do::kGiveUp: {
      // Everybody looks once more when the deadline has passed.
      if (me.at != At::kLooking && me.at != At::kLookingAgain && me.at != At::kCollecting) return false;
      const At before = me.at;
      if (shard == 0) {
        lead(state, run);
      } else {
        follow(state, run, shard);
      }
      if (me.at != before) return true;
      if (shard == 0) let_go(state);
      end(state, run, shard, true);
      return true;
    }
    case Do::kCrash:
      if (!is_running(me.at) || has_ended(me)) return false;
      if (shard == 0 && state.lock == run + 1) let_go(state);  // a dead shard 0's token is there, and of no use
      me.at = At::kDead;
      return true;
    case Do::kRetry:
      if (me.at != At::kFailed || me.tries_left == 0) return false;
      --me.tries_left;
      me.at = At::kBetween;
      return true;
    case Do::kNext:
      if (me.at != At::kFailed) return false;
      me.at = At::kBetween;
      ++me.save;
      return true;
  }
  return false;
}

inline std::vector<Action> Model::actions(const State& state) const {
  std::vector<Action> result;
  for (std::uint8_t run = 0; run < kRuns; ++run) {
    for (std::uint8_t shard = 0; shard < world_.shards; ++shard) {
      for (const Do what : {Do::kStart, Do::kStep, Do::kGiveUp, Do::kCrash, Do::kRetry, Do::kNext}) {
        State next = state;
        if (apply(next, {what, run, shard}) && next.bytes() != state.bytes()) result.push_back({what, run, shard});
      }
    }
  }
  return result;
}

inline Exploration explore(const World& world) {
  struct Reached {
    State state;
    std::uint32_t before;
    Action action;
  };
  const Model model(world);
  Exploration result;
  std::deque<Reached> reached;  // its elements stay where they are: the keys below point into them
  std::unordered_map<std::string_view, std::uint32_t> known;
  const auto visit = [&](const State& state, std::uint32_t before, const Action& action) {
    if (known.contains(state.bytes())) return;
    reached.push_back({state, before, action});
    known.emplace(reached.back().state.bytes(), static_cast<std::uint32_t>(reached.size() - 1));
  };
  const auto path_to = [&](std::uint32_t at) {
    Schedule schedule;
    for (; at != 0; at = reached[at].before) schedule.insert(schedule.begin(), reached[at].action);
    return schedule;
  };
  visit({}, 0, {});
  for (std::uint32_t at = 0; at < reached.size(); ++at) {
    const State state = reached[at].state;
    for (int run = 0; run < kRuns; ++run) {
      const Process& leader = state.processes[static_cast<std::size_t>(run)][0];
      if (leader.at != At::kCollected) continue;
      result.commits = static_cast<std::uint8_t>(result.commits | 1 << (run * kSaves + leader.save - 1));
    }
    if (state.verdict == Verdict::kMixture) result.mixture = path_to(at);
    if (state.verdict == Verdict::kLost) result.lost = path_to(at);
    if (state.verdict != Verdict::kGood) break;
    for (const Action& action : model.actions(state)) {
      State next = state;
      model.apply(next, action);
      visit(next, at, action);
    }
  }
  result.states = reached.size();
  return result;
}

inline std::string to_string(const Schedule& schedule) {
  constexpr const char* kNames[] = {"starts", "steps", "gives up", "crashes", "retries", "goes on"};
  std::string text;
  for (const Action& action : schedule) {
    text += (text.empty() ? "run " : ", run ") + std::to_string(action.run + 1) + " shard " +
            std::to_string(action.shard) + " " + kNames[static_cast<std::size_t>(action.what)];
  }
  return text;
}

}  // namespace save_model
