#include "pager/eviction.h"

#include <algorithm>
#include <tuple>

#include "pager/policy/policy.h"

namespace weightstore::pager {
namespace {

// So many uses lie between two epochs at least. 2^63 ticks are enough for 2^45 loads.
constexpr std::uint64_t kEpoch = std::uint64_t{1} << 18;

}  // namespace

TensorStates::TensorStates(const TensorTable& table) : table_(table), states_(table.size()) {
  for (std::size_t i = 0; i < states_.size(); ++i) states_[i].tensor = static_cast<std::uint32_t>(i);
}

void TensorStates::insert(std::size_t tensor, bool prefetched) {
  TensorState& state = states_[tensor];
  state.presence = Presence::kResident;
  state.prefetched = prefetched;
  epoch_.store(epoch_.load(std::memory_order_relaxed) + kEpoch, std::memory_order_relaxed);
  use(state);
  state.references.note_hit(prefetched);
  state.references.set_resident();
  const std::uint64_t size = table_.nbytes(tensor);
  resident_bytes_ += size;
  ++resident_count_;
  if (is_protected(state)) protected_bytes_ += size;
  if (state.pins == 0) enqueue(tensor);
}

bool TensorStates::remove(std::size_t tensor, bool only_unheld) {
  TensorState& state = states_[tensor];
  std::uint32_t held = 0;
  if (!only_unheld) {
    held = state.references.set_absent();
  } else if (!state.references.set_absent_if_free()) {
    return false;
  }
  const std::uint64_t size = table_.nbytes(tensor);
  resident_bytes_ -= size;
  --resident_count_;
  if (is_protected(state)) protected_bytes_ -= size;
  if (state.parked) --parked_count_;
  state.parked = false;
  state.prefetched = false;
  state.presence = held > 0 ? Presence::kHeld : Presence::kAbsent;
  return true;  // its entry in the queue goes when the search for a victim comes to it
}

void TensorStates::clear_prefetched(std::size_t tensor) {
  TensorState& state = states_[tensor];
  state.prefetched = false;
  state.references.note_hit(false);
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

bool TensorStates::park_if_held(TensorState& state) {
  if (!state.references.watch()) return false;
  ++parked_count_;
  return state.parked = true;
}

void TensorStates::unpark(TensorState& state) {
  if (state.references.count() > 0) return;
  state.references.unwatch();
  if (!state.parked) return;
  state.parked = false;
  --parked_count_;
  if (state.pins == 0) enqueue(state.tensor);
}

std::optional<TensorStates::Candidate> TensorStates::take_first(VictimRule rule, std::vector<Candidate>& spared) {
  // A tensor that another thread uses meanwhile comes up again and again. Once all have been brought up to date, such a
  // tensor is as good as any.
  for (std::size_t updates = queue_.size(); !queue_.empty();) {
    const Candidate first = pop();
    TensorState& state = states_[first.tensor];
    if (!is_candidate(state)) {
      state.queued = false;
      continue;
    }
    if (const std::uint64_t key = key_of(state); key != first.key && updates > 0) {
      --updates;
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
  if (first) push(*first);
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
void TensorStates::look_at_streamed(const Policy& policy, std::size_t distance, Look look) {
  // Tensors that are not kept have the smallest keys, which are near the front of the heap.
  constexpr std::size_t kMost = 1024;
  for (std::size_t i = 0; i < std::min(queue_.size(), kMost); ++i) {
    const std::size_t tensor = queue_[i].tensor;
    TensorState& state = states_[tensor];
    if (!is_candidate(state) || is_protected(state)) continue;
    const std::size_t needed_after = policy.distance(tensor);
    if (needed_after <= distance || state.references.watch()) continue;
    if (!look(tensor, state, needed_after)) return;
  }
}

std::optional<std::size_t> TensorStates::stream_victim(const Policy& policy, std::size_t distance,
                                                       std::uint64_t charge) {
  std::optional<std::size_t> best;
  std::tuple<bool, std::size_t, std::uint64_t> best_rank;
  look_at_streamed(policy, distance, [&](std::size_t tensor, const TensorState& state, std::size_t needed_after) {
    const std::tuple rank(state.frame->charge == charge, needed_after, ~state.tick.load(std::memory_order_relaxed));
    if (!best || rank > best_rank) {
      best = tensor;
      best_rank = rank;
    }
    return true;
  });
  return best;
}

bool TensorStates::can_stream(std::uint64_t bytes, const Policy& policy, std::size_t distance) {
  std::uint64_t sum = 0;
  look_at_streamed(policy, distance, [&](std::size_t, const TensorState& state, std::size_t) {
    sum += state.frame->charge;
    return sum < bytes;
  });
  return sum >= bytes;
}

}  // namespace weightstore::pager
