#include "checkpoint/save/protocol/save_history.h"

#include <pthread.h>

#include <atomic>

#include "io/temporaries.h"

namespace weightstore::checkpoint {
namespace {

thread_local SaveHistory* simulated = nullptr;

std::atomic<SaveHistory*> of_process = nullptr;

// The child never frees the history of its parent: another thread of the parent may have been changing it.
void forget_in_child() { of_process = nullptr; }

}  // namespace

SaveHistory::SaveHistory() : process_id_(io::random_digits()) {}

SaveHistory& SaveHistory::current() {
  if (simulated != nullptr) return *simulated;
  static const int registered = ::pthread_atfork(nullptr, nullptr, forget_in_child);
  static_cast<void>(registered);
  SaveHistory* known = of_process;
  if (known != nullptr) return *known;
  auto* made = new SaveHistory;
  if (of_process.compare_exchange_strong(known, made)) return *made;
  delete made;  // another thread was faster
  return *known;
}

SaveHistory::Past SaveHistory::begin(const Series& series) {
  const std::lock_guard lock(mutex_);
  Past& entry = entries_[series];
  Past past = entry;
  ++entry.saves;
  ++entry.missed;
  return past;
}

void SaveHistory::succeeded(const Series& series) {
  const std::lock_guard lock(mutex_);
  --entries_[series].missed;
}

void SaveHistory::set_leader(const Series& series, const std::string& process_id) {
  const std::lock_guard lock(mutex_);
  entries_[series].leader = process_id;
}

ScopedSaveHistory::ScopedSaveHistory(SaveHistory& history) { simulated = &history; }
ScopedSaveHistory::~ScopedSaveHistory() { simulated = nullptr; }

}  // namespace weightstore::checkpoint
