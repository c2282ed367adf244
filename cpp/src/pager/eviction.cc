#include "pager/eviction.h"

#include <algorithm>

namespace weightstore::pager {

void TensorStates::insert(std::size_t tensor, Frame* frame, bool prefetched) {
  TensorState& state = states_[tensor];
  state.frame = frame;
  state.presence = Presence::kResident;
  state.prefetched = prefetched;
  use(state);
  const std::uint64_t size = table_.nbytes(tensor);
  resident_bytes_ += size;
  ++resident_count_;
  if (is_protected(state)) protected_bytes_ += size;
}

Frame* TensorStates::remove(std::size_t tensor) {
  TensorState& state = states_[tensor];
  const std::uint64_t size = table_.nbytes(tensor);
  resident_bytes_ -= size;
  --resident_count_;
  if (is_protected(state)) protected_bytes_ -= size;
  state.prefetched = false;
  state.presence = Presence::kAbsent;
  Frame* frame = state.frame;
  state.frame = nullptr;
  return frame;
}

void TensorStates::clear_prefetched(std::size_t tensor) {
  TensorState& state = states_[tensor];
  state.prefetched = false;
  if (!is_protected(state)) protected_bytes_ -= table_.nbytes(tensor);
}

void TensorStates::pin(std::size_t tensor) {
  TensorState& state = states_[tensor];
  const bool was_protected = is_protected(state);
  ++state.pins;
  if (!was_protected && state.presence == Presence::kResident) protected_bytes_ += table_.nbytes(tensor);
}

void TensorStates::unpin(std::size_t tensor) {
  TensorState& state = states_[tensor];
  --state.pins;
  if (state.presence != Presence::kResident || is_protected(state)) return;
  protected_bytes_ -= table_.nbytes(tensor);
  oldest_.clear();  // this tensor may be older than every tensor in the list
}

bool TensorStates::allows(const TensorState& state, VictimRule rule) {
  if (rule.spare_prefetched && state.prefetched) return false;
  // Sequentially consistent, because of this handshake: a thread that drops a reference and sees no waiting thread does
  // not notify anybody. A thread that starts to wait afterwards must then see that the reference is gone.
  return !rule.only_unheld || state.frame->refs.load() == 1;
}

bool TensorStates::can_free(std::uint64_t bytes, VictimRule rule) const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < states_.size() && sum < bytes; ++i) {
    if (is_candidate(states_[i]) && allows(states_[i], rule)) sum += states_[i].frame->charge;
  }
  return sum >= bytes;
}

std::optional<std::size_t> TensorStates::victim(VictimRule rule) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    // From the oldest on. An entry that this rule does not allow stays in the list for the next rule.
    for (std::size_t k = oldest_.size(); k-- > 0;) {
      const TensorState& state = states_[oldest_[k].tensor];
      const bool stale = state.tick != oldest_[k].tick || !is_candidate(state);
      if (stale && k + 1 == oldest_.size()) {
        oldest_.pop_back();
        continue;
      }
      if (!stale && allows(state, rule)) return oldest_[k].tensor;
    }
    if (attempt == 0) find_oldest();
  }
  if (!rule.only_unheld && !rule.spare_prefetched) return std::nullopt;
  // The rule allows none of the oldest tensors, so search all of them.
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (!is_candidate(states_[i]) || !allows(states_[i], rule)) continue;
    if (!best || states_[i].tick < states_[*best].tick) best = i;
  }
  return best;
}

void TensorStates::find_oldest() {
  oldest_.clear();
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (is_candidate(states_[i])) oldest_.push_back({states_[i].tick, static_cast<std::uint32_t>(i)});
  }
  // The list has an eighth of the tensors, so that the average cost of a victim does not grow with their number.
  const std::size_t count = std::min(oldest_.size(), std::max<std::size_t>(64, states_.size() / 8));
  const auto older = [](const Candidate& a, const Candidate& b) { return a.tick < b.tick; };
  std::partial_sort(oldest_.begin(), oldest_.begin() + static_cast<std::ptrdiff_t>(count), oldest_.end(), older);
  oldest_.resize(count);
  std::reverse(oldest_.begin(), oldest_.end());
}

}  // namespace weightstore::pager
