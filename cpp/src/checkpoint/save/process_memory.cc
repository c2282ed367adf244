#include "checkpoint/save/process_memory.h"

#include <pthread.h>

#include <atomic>

#include "io/atomic_file.h"

namespace weightstore::checkpoint {
namespace {

thread_local ProcessMemory* played = nullptr;

std::atomic<ProcessMemory*> ours = nullptr;

// The parent's memory is left as it is, and never freed: one of the parent's threads may have been changing it.
void forget_in_child() { ours = nullptr; }

}  // namespace

ProcessMemory::ProcessMemory() : id_(io::random_digits()) {}

ProcessMemory& ProcessMemory::current() {
  if (played != nullptr) return *played;
  static const int registered = ::pthread_atfork(nullptr, nullptr, forget_in_child);
  static_cast<void>(registered);
  ProcessMemory* known = ours;
  if (known != nullptr) return *known;
  auto* made = new ProcessMemory;
  if (ours.compare_exchange_strong(known, made)) return *made;
  delete made;  // another thread was quicker
  return *known;
}

ProcessMemory::Before ProcessMemory::begin(const Place& place) {
  const std::lock_guard lock(mutex_);
  Before& entry = entries_[place];
  Before before = entry;
  ++entry.saves;
  ++entry.missed;
  return before;
}

void ProcessMemory::succeeded(const Place& place) {
  const std::lock_guard lock(mutex_);
  --entries_[place].missed;
}

void ProcessMemory::set_leader(const Place& place, const std::string& process) {
  const std::lock_guard lock(mutex_);
  entries_[place].leader = process;
}

ScopedProcess::ScopedProcess(ProcessMemory& memory) { played = &memory; }
ScopedProcess::~ScopedProcess() { played = nullptr; }

}  // namespace weightstore::checkpoint
