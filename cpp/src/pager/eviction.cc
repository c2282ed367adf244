#include "pager/eviction.h"

#include <algorithm>
#include <tuple>

#include "pager/policy/policy.h"

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
  if (state.pins == 0) enqueue(tensor);
}

Frame* TensorStates::remove(std::size_t tensor) {
  TensorState& state = states_[tensor];
  const std::uint64_t size = table_.nbytes(tensor);
  resident_bytes_ -= size;
  --resident_count_;
  if (is_protected(state)) protected_bytes_ -= size;
  if (state.parked) --parked_count_;
  state.parked = false;
  state.prefetched = false;
  state.presence = Presence::kAbsent;
  Frame* frame = state.frame;
  state.frame = nullptr;
  return frame;  // its entry in the queue goes when the search for a victim comes to it
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
  if (state.presence != Presence::kResident || state.pins > 0) return;
  if (!is_protected(state)) protected_bytes_ -= table_.nbytes(tensor);
  if (!state.parked) enqueue(tensor);
}

void TensorStates::set_kept(const std::vector<bool>& kept) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    TensorState& state = states_[i];
    if (state.kept == kept[i]) continue;
    const bool was_protected = is_protected(state);
    state.kept = kept[i];
    if (state.presence != Presence::kResident || is_protected(state) == was_protected) continue;
    protected_bytes_ += was_protected ? -table_.nbytes(i) : table_.nbytes(i);
  }
  // The keys of tensors that are no longer kept have become smaller.
  for (Candidate& candidate : queue_) candidate.key = key_of(states_[candidate.tensor]);
  std::make_heap(queue_.begin(), queue_.end(), is_later);
}

// ---- the queue ------------------------------------------------------------------------------------------------------

void TensorStates::enqueue(std::size_t tensor) {
  TensorState& state = states_[tensor];
  if (state.queued) return;
  state.queued = true;
  push({key_of(state), static_cast<std::uint32_t>(tensor)});
}

void TensorStates::push(Candidate candidate) {
  queue_.push_back(candidate);
  std::push_heap(queue_.begin(), queue_.end(), is_later);
}

TensorStates::Candidate TensorStates::pop() {
  std::pop_heap(queue_.begin(), queue_.end(), is_later);
  const Candidate candidate = queue_.back();
  queue_.pop_back();
  return candidate;
}

bool TensorStates::is_held(const TensorState& state) {
  // Sequentially consistent, because of this handshake: a thread that drops a reference, and then sees no waiting
  // thread and no parked tensor, does not notify anybody. A thread that waits or parks the tensor afterwards must then
  // see that the reference is gone.
  return state.frame->refs.load() > 1;
}

bool TensorStates::park_if_held(TensorState& state) {
  if (!is_held(state)) return false;
  ++parked_count_;
  if (is_held(state)) return state.parked = true;
  --parked_count_;  // released just now
  return false;
}

void TensorStates::unpark(std::size_t tensor) {
  TensorState& state = states_[tensor];
  if (!state.parked || is_held(state)) return;
  state.parked = false;
  --parked_count_;
  if (state.pins == 0) enqueue(tensor);
}

std::optional<TensorStates::Candidate> TensorStates::take_first(VictimRule rule, std::vector<Candidate>& spared) {
  while (!queue_.empty()) {
    const Candidate first = pop();
    TensorState& state = states_[first.tensor];
    if (!is_candidate(state)) {
      state.queued = false;
      continue;
    }
    if (const std::uint64_t key = key_of(state); key != first.key) {
      push({key, first.tensor});  // it was used since
      continue;
    }
    if (rule.only_unheld && park_if_held(state)) {
      state.queued = false;
      continue;
    }
    if (rule.spare_protected && (state.prefetched || state.kept)) {
      spared.push_back(first);
      continue;
    }
    return first;
  }
  return std::nullopt;
}

std::optional<std::size_t> TensorStates::victim(VictimRule rule) {
  std::vector<Candidate> spared;
  const auto first = take_first(rule, spared);
  if (first) spared.push_back(*first);
  for (const Candidate& candidate : spared) push(candidate);
  return first ? std::optional<std::size_t>(first->tensor) : std::nullopt;
}

bool TensorStates::can_free(std::uint64_t bytes, VictimRule rule) {
  std::vector<Candidate> taken;
  std::vector<Candidate> spared;
  std::uint64_t sum = 0;
  while (sum < bytes) {
    const auto first = take_first(rule, spared);
    if (!first) break;
    sum += states_[first->tensor].frame->charge;
    taken.push_back(*first);
  }
  for (const auto* candidates : {&taken, &spared}) {
    for (const Candidate& candidate : *candidates) push(candidate);
  }
  return sum >= bytes;
}

// ---- reading ahead --------------------------------------------------------------------------------------------------

template <class Look>
void TensorStates::look_at_streamed(const Policy& policy, std::size_t distance, Look look) const {
  // Tensors that are not kept have the smallest keys, which are near the front of the heap.
  constexpr std::size_t kMost = 1024;
  for (std::size_t i = 0; i < std::min(queue_.size(), kMost); ++i) {
    const std::size_t tensor = queue_[i].tensor;
    const TensorState& state = states_[tensor];
    if (!is_candidate(state) || is_protected(state) || is_held(state)) continue;
    const std::size_t needed_after = policy.distance(tensor);
    if (needed_after <= distance) continue;
    if (!look(tensor, state, needed_after)) return;
  }
}

std::optional<std::size_t> TensorStates::stream_victim(const Policy& policy, std::size_t distance,
                                                       std::uint64_t charge) const {
  std::optional<std::size_t> best;
  std::tuple<bool, std::size_t, std::uint64_t> best_rank;
  look_at_streamed(policy, distance, [&](std::size_t tensor, const TensorState& state, std::size_t needed_after) {
    const std::tuple rank(state.frame->charge == charge, needed_after, ~state.tick);
    if (!best || rank > best_rank) {
      best = tensor;
      best_rank = rank;
    }
    return true;
  });
  return best;
}

bool TensorStates::can_stream(std::uint64_t bytes, const Policy& policy, std::size_t distance) const {
  std::uint64_t sum = 0;
  look_at_streamed(policy, distance, [&](std::size_t, const TensorState& state, std::size_t) {
    sum += state.frame->charge;
    return sum < bytes;
  });
  return sum >= bytes;
}

}  // namespace weightstore::pager
