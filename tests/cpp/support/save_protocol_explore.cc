#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

#include "save_protocol_model.h"

namespace save_model {

Exploration explore(const World& world) {
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

std::string to_string(const Schedule& schedule) {
  constexpr const char* kNames[] = {"starts", "steps", "gives up", "crashes", "retries", "goes on"};
  std::string text;
  for (const Action& action : schedule) {
    text += (text.empty() ? "run " : ", run ") + std::to_string(action.run + 1) + " shard " +
            std::to_string(action.shard) + " " + kNames[static_cast<std::size_t>(action.what)];
  }
  return text;
}

}  // namespace save_model
