#include "save_protocol_model.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/save/protocol/token.h"

namespace save_model {
namespace {

bool is_running(At at) { return at != At::kUnborn && at != At::kDead; }
bool has_ended(const Process& process) {
  return process.at == At::kDead || (process.at == At::kBetween && process.save > kSaves);
}

}  // namespace

bool Model::may_start(const State& state, int run, int shard) const {
  if (run == 0 || world_.restart == Restart::kAny) return true;
  const auto& first = state.processes[0];
  if (world_.restart == Restart::kShard) return has_ended(first[static_cast<std::size_t>(shard)]);
  for (int s = 0; s < world_.shards; ++s) {
    if (!has_ended(first[static_cast<std::size_t>(s)])) return false;
  }
  return true;
}

void Model::end(State& state, int run, int shard, bool failed) const {
  Process& me = state.processes[static_cast<std::size_t>(run)][static_cast<std::size_t>(shard)];
  me.joined = me.session = me.attempt = 0;
  me.at = failed ? At::kFailed : At::kBetween;
  if (failed) me.missed = 1;
  if (!failed) ++me.save;
}

// Shard 0: lock, remove the files of other attempts, publish the token.
void Model::open(State& state, int run) const {
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

bool Model::fits(const Record& record, const Process& leader, int run) const {
  if (record.session == 0) return false;
  if (world_.naming == Naming::kRun) return !world_.rules.run || record.session == run + 1;
  return !world_.rules.session || record.session == leader.session;
}

bool Model::collected(const State& state, int run) const {
  const Process& me = state.processes[static_cast<std::size_t>(run)][0];
  for (int shard = 1; shard < world_.shards; ++shard) {
    State& mutable_state = const_cast<State&>(state);
    if (!fits(record_of(mutable_state, me.save, shard), me, run)) return false;
  }
  return true;
}

// Whether the records that shard 0 has collected may be one checkpoint.
void Model::judge(State& state, int run) const {
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
void Model::let_go(State& state) const {
  state.lock = 0;
  if (world_.naming != Naming::kRun) state.token = {};
}

bool Model::lead(State& state, int run) const {
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
void Model::look(State& state, int run, int shard) const {
  using weightstore::checkpoint::JoinDecision;
  Process& me = state.processes[static_cast<std::size_t>(run)][static_cast<std::size_t>(shard)];
  const PublishedToken& found = state.token;
  if (found.session == 0) return;
  const bool given = world_.naming == Naming::kAttempt;
  const Rules& rules = world_.rules;
  const auto text = [](std::uint8_t n) { return n == 0 ? std::string() : std::to_string(n); };
  weightstore::checkpoint::Token token{text(found.session), text(found.attempt), given,       "",
                                       text(found.process), found.count,         found.missed};
  weightstore::checkpoint::ExpectedSave expected{given ? text(me.save) : "", "", me.count, me.missed,
                                                 text(me.joined != 0 ? me.joined
                                                      : given        ? std::uint8_t{0}
                                                                     : me.leader)};
  if (!rules.attempt && given) token.attempt = expected.attempt;
  if (!rules.count) token.count = expected.count;
  if (!rules.missed) token.missed = expected.missed = 0;
  if (!rules.leader) expected.leader.clear();
  const JoinDecision decision = decide_join(token, expected);
  if (decision == JoinDecision::kWait) return;
  if (decision == JoinDecision::kRefuse) {
    if (me.at == At::kLooking && (expected.leader.empty() || expected.leader == token.process)) {
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

bool Model::follow(State& state, int run, int shard) const {
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

void Model::forget_details(State& state) const {
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

bool Model::apply(State& state, const Action& action) const {
  const bool done = change(state, action);
  if (done) forget_details(state);
  return done;
}

bool Model::change(State& state, const Action& action) const {
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

std::vector<Action> Model::actions(const State& state) const {
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

}  // namespace save_model
