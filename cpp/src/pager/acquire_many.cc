// Acquiring several tensors in one call.

#include <utility>

#include "pager/pager_impl.h"

namespace weightstore::pager {

struct PagerImpl::Batch {
  explicit Batch(std::span<const std::size_t> wanted) : tensors(wanted), states(wanted.size()), loads(wanted.size()) {}

  std::span<const std::size_t> tensors;
  std::vector<TensorState*> states;  // null where there is no reference yet
  std::vector<LoadPtr> loads;        // of the tensors that had to be read when the call began
  Failure failure;                   // the first one
};

std::vector<TensorState*> PagerImpl::acquire_many(std::span<const std::size_t> tensors, Wait wait,
                                                  const Progress& progress) {
  // With a strict budget, one tensor of this call may have to wait for room that another one has.
  if (account_.strict()) return acquire_one_by_one(tensors, wait, progress);

  Batch batch(tensors);
  Retired retired;
  Lock lock(mutex_);
  account_.check_open();
  loads_.check_process();
  for (const std::size_t tensor : tensors) {
    statistics_.count_passes(tensor);
    note_acquire(tensor);
  }
  take_present(batch, retired);
  loads_.read_ahead();
  begin_loads(batch);
  Deadline deadline(std::chrono::milliseconds(0), progress);  // only strict budgets wait for room
  wait_for_loads(lock, batch, deadline, retired);
  // The order of use is the order in which the caller named the tensors, not that in which they were loaded.
  TensorStates& states = account_.states();
  for (const std::size_t tensor : tensors) {
    if (states[tensor].presence == Presence::kResident) states.use(states[tensor]);
  }
  lock.unlock();
  if (batch.failure) {
    for (TensorState* state : batch.states) {
      if (state != nullptr) drop(*state);
    }
    batch.failure();
  }
  return std::move(batch.states);
}

std::vector<TensorState*> PagerImpl::acquire_one_by_one(std::span<const std::size_t> tensors, Wait wait,
                                                        const Progress& progress) {
  std::vector<TensorState*> states;
  states.reserve(tensors.size());
  try {
    for (const std::size_t tensor : tensors) states.push_back(&acquire(tensor, wait, progress));
  } catch (...) {
    for (TensorState* state : states) drop(*state);
    throw;
  }
  return states;
}

void PagerImpl::take_present(Batch& batch, Retired& retired) {
  // Resident tensors first: to restore a held one may evict others.
  for (std::size_t k = 0; k < batch.tensors.size(); ++k) {
    TensorState& state = account_.states()[batch.tensors[k]];
    if (state.presence != Presence::kResident) continue;
    hit(state);
    batch.states[k] = &state;
  }
  for (std::size_t k = 0; k < batch.tensors.size(); ++k) {
    TensorState& state = account_.states()[batch.tensors[k]];
    if (batch.states[k] == nullptr && acquire_present(state, retired)) batch.states[k] = &state;
  }
}

void PagerImpl::begin_loads(Batch& batch) {
  std::vector<LoadPtr> begun;
  for (std::size_t k = 0; k < batch.tensors.size(); ++k) {
    if (batch.states[k] != nullptr) continue;
    batch.loads[k] = loads_.begin_or_join(batch.tensors[k]);
    if (!batch.loads[k]->is_running && batch.loads[k]->waiters == 1) begun.push_back(batch.loads[k]);
  }
  if (begun.size() > 1) loads_.share(begun);
}

void PagerImpl::wait_for_loads(Lock& lock, Batch& batch, Deadline& deadline, Retired& retired) {
  for (std::size_t k = 0; k < batch.tensors.size(); ++k) {
    TensorState& state = account_.states()[batch.tensors[k]];
    LoadPtr& load = batch.loads[k];
    while (batch.states[k] == nullptr) {
      if (deadline.is_cancelled()) {
        loads_.stop_waiting(load, retired);
        break;
      }
      if (Failure failure = loads_.wait(lock, load, deadline, Clock::now(), retired)) {
        if (!batch.failure) batch.failure = std::move(failure);
        break;
      }
      // Without a result, another caller ran the load and cancelled it.
      if (load->has_result || acquire_present(state, retired)) {
        batch.states[k] = &state;
      } else {
        load = loads_.begin_or_join(batch.tensors[k]);
      }
    }
  }
}

}  // namespace weightstore::pager
