// What the load scheduler reads before anybody asks for it, because the policy expects it to be used.

#include <algorithm>
#include <utility>

#include "pager/load_scheduler.h"

namespace weightstore::pager {
namespace {

// So many tensors are queued or being read ahead at a time.
constexpr std::size_t kReadAhead = 8;

}  // namespace

void LoadScheduler::note_acquire(std::size_t tensor) {
  const Policy::Step step = account_.note_acquire(tensor);
  if (step == Policy::Step::kExpected) {
    if (planned_ > 0) --planned_;
  } else {
    for (const std::size_t other : std::exchange(ahead_, {})) account_.give_up_prefetch(other);
    planned_ = 0;
  }
}

void LoadScheduler::read_ahead() {
  const Policy* policy = account_.policy();
  if (policy == nullptr || account_.is_closed()) return;
  const TensorStates& states = account_.states();
  planned_ = std::min(planned_, account_.take_nearest_evicted());  // what was evicted must be read again
  bool queued = false;
  while (planned_ < policy->horizon() && readers_.prefetches_left() < kReadAhead) {
    const std::size_t tensor = policy->expected(planned_);
    if (states[tensor].presence == Presence::kAbsent) {
      if (!has_room_ahead(tensor) || !try_start_readers()) break;
      queue_prefetch(tensor);
      queued = true;
      while (!ahead_.empty() && !is_ahead(ahead_.front())) ahead_.pop_front();
      ahead_.push_back(tensor);
    }
    ++planned_;
  }
  if (queued) readers_.wake();
}

bool LoadScheduler::is_ahead(std::size_t tensor) const {
  const TensorState& state = account_.states()[tensor];
  return state.presence == Presence::kQueued || state.presence == Presence::kLoading || state.prefetched;
}

bool LoadScheduler::has_room_ahead(std::size_t tensor) {
  if (account_.strict()) {
    std::uint64_t queued = 0;
    for (const std::size_t other : readers_.queued_prefetches()) queued += catalog_.charge(other);
    return account_.can_read_ahead(tensor, planned_, queued);
  }
  // The tensor in use is not protected, and needs room beside those that are.
  return account_.has_room_to_prefetch(tensor, loading_bytes() + catalog_.largest_buffer());
}

std::uint64_t LoadScheduler::loading_bytes() const {
  std::uint64_t sum = 0;
  for (const LoadPtr& load : loading_) sum += catalog_.table().nbytes(load->tensor());
  return sum;
}

}  // namespace weightstore::pager
