// Acquiring several tensors in one call.

#include <utility>

#include "pager/pager_impl.h"

namespace weightstore::pager {

struct PagerImpl::Batch {
  explicit Batch(std::span<const std::size_t> wanted) : tensors(wanted), frames(wanted.size()), loads(wanted.size()) {}

  std::span<const std::size_t> tensors;
  std::vector<Frame*> frames;  // null where there is none yet
  std::vector<LoadPtr> loads;  // of the tensors that had no frame when the call began
  Failure failure;             // the first one
};

std::vector<Frame*> PagerImpl::acquire_many(std::span<const std::size_t> tensors, Wait wait, const Progress& progress) {
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
    for (Frame* frame : batch.frames) {
      if (frame != nullptr) drop(frame);
    }
    batch.failure();
  }
  return std::move(batch.frames);
}

std::vector<Frame*> PagerImpl::acquire_one_by_one(std::span<const std::size_t> tensors, Wait wait,
                                                  const Progress& progress) {
  std::vector<Frame*> frames;
  frames.reserve(tensors.size());
  try {
    for (const std::size_t tensor : tensors) frames.push_back(acquire(tensor, wait, progress));
  } catch (...) {
    for (Frame* frame : frames) drop(frame);
    throw;
  }
  return frames;
}

void PagerImpl::take_present(Batch& batch, Retired& retired) {
  // Resident tensors first: to restore a held one may evict others.
  for (std::size_t k = 0; k < batch.tensors.size(); ++k) {
    const std::size_t tensor = batch.tensors[k];
    if (account_.states()[tensor].presence == Presence::kResident) batch.frames[k] = hit(tensor);
  }
  for (std::size_t k = 0; k < batch.tensors.size(); ++k) {
    if (batch.frames[k] == nullptr) batch.frames[k] = acquire_present(batch.tensors[k], retired);
  }
}

void PagerImpl::begin_loads(Batch& batch) {
  std::vector<LoadPtr> begun;
  for (std::size_t k = 0; k < batch.tensors.size(); ++k) {
    if (batch.frames[k] != nullptr) continue;
    batch.loads[k] = loads_.begin_or_join(batch.tensors[k]);
    if (!batch.loads[k]->is_running && batch.loads[k]->waiters == 1) begun.push_back(batch.loads[k]);
  }
  if (begun.size() > 1) loads_.share(begun);
}

void PagerImpl::wait_for_loads(Lock& lock, Batch& batch, Deadline& deadline, Retired& retired) {
  for (std::size_t k = 0; k < batch.tensors.size(); ++k) {
    Frame*& frame = batch.frames[k];
    LoadPtr& load = batch.loads[k];
    while (frame == nullptr) {
      if (deadline.is_cancelled()) {
        loads_.stop_waiting(load, retired);
        break;
      }
      if (Failure failure = loads_.wait(lock, load, deadline, retired)) {
        if (!batch.failure) batch.failure = std::move(failure);
        break;
      }
      frame = load->result;
      if (frame != nullptr) break;
      // Another caller ran the load and cancelled it.
      frame = acquire_present(batch.tensors[k], retired);
      if (frame == nullptr) load = loads_.begin_or_join(batch.tensors[k]);
    }
  }
}

}  // namespace weightstore::pager
