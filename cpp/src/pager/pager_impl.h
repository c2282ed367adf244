#pragma once

// The pager behind the public class: it joins the parts of this folder and owns the mutex that guards them.
//
//   Catalog         which tensors there are and how each is read; does not change
//   MemoryAccount   which tensors are in memory, the budget, free buffers, eviction, waiting for room
//   LoadScheduler   which tensors are being read, by which thread, and who waits; the reader threads
//   Statistics      counters
//
// The mutex is never held while bytes are read, memory is allocated or freed, or a caller's code runs.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "pager/catalog.h"
#include "pager/load_scheduler.h"
#include "pager/memory_account.h"
#include "pager/statistics.h"
#include "weightstore/pager.h"

namespace weightstore::pager {

using Wait = std::optional<std::chrono::milliseconds>;

// Shared by the Pager, the frames that callers hold, and the reader threads. Thread-safe. Tensors go by their number in
// table(), which the caller has checked. The functions do what those of the same name in weightstore/pager.h say.
class PagerImpl : public std::enable_shared_from_this<PagerImpl> {
 public:
  // For the arguments see Catalog. The object must be owned by a std::shared_ptr.
  PagerImpl(std::optional<Reader> reader, TensorTable raw_table, const PagerOptions& options);

  const Catalog& catalog() const { return catalog_; }
  const TensorTable& table() const { return catalog_.table(); }
  std::size_t find(std::string_view name);

  // The caller has a reference to each returned tensor, which goes back with drop().
  TensorState& acquire(std::size_t tensor, Wait wait, const Progress& progress);
  TensorState* try_acquire(std::size_t tensor);
  // A hit without the mutex. Null when that is not possible, or there is no such tensor.
  TensorState* try_hit(std::size_t tensor) {
    TensorStates& states = account_.states();
    if (tensor >= states.size() || !hits_are_plain_.load(std::memory_order_relaxed)) return nullptr;
    TensorState& state = states[tensor];
    if (!state.references.try_hit()) return nullptr;
    states.use(state);
    statistics_.count_passes(tensor);
    return &state;
  }
  std::vector<TensorState*> acquire_many(std::span<const std::size_t> tensors, Wait wait, const Progress& progress);
  static void drop(TensorState& state) noexcept {
    if (!state.references.try_release()) drop_with_mutex(state);
  }

  void prefetch(std::span<const std::size_t> tensors);
  void finish_prefetch(const Progress& progress);
  void pin(std::size_t tensor);
  void unpin(std::size_t tensor);
  bool evict(std::size_t tensor);
  std::size_t clear();
  void set_budget(std::uint64_t bytes, bool follow);
  void close();

  // Calls `look` with the account while the mutex is held, and returns the result.
  template <class Look>
  auto look(Look look) const {
    const std::lock_guard lock(mutex_);
    return look(account_);
  }

  // Takes time for every tensor.
  PagerStats stats();
  PagerStats stats(std::size_t tensor);
  void reset_stats();

  void before_fork() { mutex_.lock(); }
  void after_fork();

 private:
  struct Batch;

  static void drop_with_mutex(TensorState& state) noexcept;
  // Tells the policy, if there is one.
  void note_acquire(std::size_t tensor);
  void hit(TensorState& state);
  // Takes a reference to a tensor that needs no reading. False when it does.
  bool acquire_present(TensorState& state, Retired& retired);
  // Changes the budget when the available memory has changed, once in a while. Called without the mutex.
  void follow_memory();
  // Steps of acquire_many().
  std::vector<TensorState*> acquire_one_by_one(std::span<const std::size_t> tensors, Wait wait,
                                               const Progress& progress);
  void take_present(Batch& batch, Retired& retired);
  void begin_loads(Batch& batch);
  void wait_for_loads(Lock& lock, Batch& batch, Deadline& deadline, Retired& retired);

  const Catalog catalog_;
  const std::chrono::milliseconds default_wait_;
  mutable std::mutex mutex_;
  Statistics statistics_;
  MemoryAccount account_;
  LoadScheduler loads_;
  std::atomic<bool> follows_memory_;
  std::atomic<bool> hits_are_plain_;      // no policy wants to know of them, and the pager does not follow the memory
  std::atomic<Clock::rep> next_look_{0};  // when to look at the available memory again
};

}  // namespace weightstore::pager
