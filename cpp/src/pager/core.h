#pragma once

// The pager itself. One mutex guards everything that is not said to be otherwise; it is never held while bytes are
// read, memory is allocated or freed, or a caller's code runs.
//
// The life of a load: begin() marks the slot as loading, so that others join; reserve() takes memory from the account,
// which a strict budget may have to wait for; fetch() reads without the mutex; publish() puts the block into the table
// and what no longer fits out of it, in one step. On an error abandon() undoes the first two, and the table is as it
// was. What went wrong with the reading goes to all who wait. When the one who leads gives up, for want of time or on
// its caller's word, that is its own affair: those who wait begin anew.
//
// Account: live_bytes_ is the charges of all blocks and of all loads that have reserved, and the free buffers of the
// pool. Every charge is added once, in reserve(), and taken off once, in abandon() or when its block is dropped.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "io/direct_file.h"
#include "pager/buffer_pool.h"
#include "pager/load.h"
#include "pager/patience.h"
#include "pager/slot_table.h"
#include "weightstore/pager.h"

namespace weightstore::pager {

using Wait = std::optional<std::chrono::milliseconds>;
using Failure = std::function<void()>;  // throws it; empty when there is none

class Core : public std::enable_shared_from_this<Core> {
 public:
  // `reader` is null for a raw source, whose table is then `table`.
  Core(std::optional<Reader> reader, TensorTable table, const PagerOptions& options);
  ~Core();

  const TensorTable& table() const { return reader_ ? reader_->table() : raw_table_; }
  std::size_t checked(std::size_t slot) const;
  std::size_t find(std::string_view name);

  // References of the callers'.
  Block* acquire(std::size_t slot, Wait wait, const Progress& progress);
  Block* try_acquire(std::size_t slot);
  void acquire_many(std::span<const std::size_t> slots, Wait wait, const Progress& progress,
                    const std::function<void(std::size_t, Block*)>& give);
  static void drop(Block* block) noexcept;

  void prefetch(std::span<const std::size_t> slots);
  void finish_prefetch(const Progress& progress);
  void pin(std::size_t slot);
  void unpin(std::size_t slot);
  bool evict(std::size_t slot);
  std::size_t clear();
  void set_budget(std::uint64_t bytes);
  void close();

  template <class Look>
  auto look(Look look_at) const {
    const std::lock_guard lock(mutex_);
    return look_at(*this);
  }
  const SlotTable& slots() const { return slots_; }
  std::uint64_t budget() const { return budget_; }
  std::uint64_t live_bytes() const { return live_bytes_; }
  std::uint64_t over_budget_bytes() const;
  bool reads_directly() const { return !direct_.empty(); }

  PagerStats stats() const;
  PagerStats stats(std::size_t slot) const;
  void reset_stats();

  void before_fork() { mutex_.lock(); }
  void after_fork();

 private:
  using LoadPtr = std::shared_ptr<Load>;

  // ---- core.cc ---------------------------------------------------------------------------------------------------
  void check_open() const;
  void note_pass(std::size_t slot) {
    if (slot == first_slot_) {
      ++totals_.pass_count;
    } else if (first_slot_ == slots_.size()) {
      first_slot_ = slot;
    }
  }
  Block* hit(std::size_t slot);
  Block* resurrect(std::size_t slot, Garbage& garbage);
  // A reference to what needs no reading; null otherwise.
  Block* present(std::size_t slot, Garbage& garbage);

  // ---- flight.cc -------------------------------------------------------------------------------------------------
  LoadPtr begin(std::size_t slot, bool prefetch);
  // The load of a slot that is not present, with the caller among those who wait for it.
  LoadPtr enlist(std::size_t slot);
  // Leads the load if nobody does, else helps and waits. Afterwards the result has a reference for the caller, or there
  // is a failure, or neither: then whoever led it gave up.
  Failure await(Lock& lock, const LoadPtr& load, Patience& patience, Garbage& garbage);
  Failure join(Lock& lock, const LoadPtr& load, Patience& patience, Garbage& garbage);
  Failure lead(Lock& lock, const LoadPtr& load, Patience& patience);
  // The end of the caller's wait before or after that of the load; of a load that nobody leads, its end.
  void leave(const LoadPtr& load, Garbage& garbage);
  void end(Load& load);
  Block* fetch(const LoadPtr& load, Patience& patience);
  void read(Load& load, Patience& patience);
  void publish(Load& load, Block* block, Garbage& garbage);
  void abandon(Load& load, Garbage& garbage);
  LoadPlan plan_of(std::size_t slot) const;
  std::uint64_t charge_of(std::size_t slot) const;
  const ByteSource& source_of(std::size_t slot) const { return *table().sources()[table().source_of(slot)]; }
  // In a handler: the same again, as an error about this tensor; a missing end becomes an OffloadEof.
  Failure explain(std::size_t slot) const;

  // ---- reserve.cc ------------------------------------------------------------------------------------------------
  // Takes the load's memory from the account, and a buffer from the pool when there is one. Strict: waits for room, and
  // evicts once that makes enough.
  void reserve(Lock& lock, Load& load, Patience& patience, Garbage& garbage);
  bool take_buffer(Load& load, std::uint64_t charge);
  bool make_room(Load& load, std::uint64_t charge, bool buffered, SlotTable::Wish wish, Garbage& garbage);
  bool may_get_room() const;
  std::vector<std::string> holders() const;
  // Evicts until `bytes` more keep the budget, or nothing more can go.
  void evict_for(std::uint64_t bytes, SlotTable::Wish wish, Garbage& garbage);
  void evict_slot(std::size_t slot, Garbage& garbage);
  // The end of a block: takes it off the account and keeps its buffer, or leaves it for the caller to free.
  void bury(Block* block, Garbage& garbage);
  void trim(std::uint64_t most, Garbage& garbage);
  void drop_last(Block* block) noexcept;
  // Drops a reference under the mutex.
  void unreference(Block* block, Garbage& garbage);
  void forget(Block* block, Garbage& garbage);
  void note_live() { totals_.peak_live_bytes = std::max(totals_.peak_live_bytes, live_bytes_); }

  // ---- prefetch.cc, readers.cc -----------------------------------------------------------------------------------
  void start_readers(Lock& lock);
  void read_loop();
  bool help(Lock& lock);
  // On a reader: nobody is asked, and nothing is waited for but the read.
  void lead_alone(Lock& lock, const LoadPtr& load);
  void run_queued(Lock& lock, std::size_t slot);
  bool has_room_to_prefetch(std::size_t slot) const;
  // Lets readers take part in a load, or lead some of several that somebody waits for.
  void ask_for_help(const LoadPtr& load);
  void share(Lock& lock, std::span<const LoadPtr> loads);
  // In a child process: forgets threads and loads that exist only in the parent.
  void adopt_after_fork();

  const std::optional<Reader> reader_;
  const TensorTable raw_table_;
  const bool strict_;
  std::vector<bool> viewable_;  // by source: handed out without a copy
  const unsigned reader_count_;
  const std::chrono::milliseconds default_wait_;
  std::vector<std::unique_ptr<io::DirectFile>> direct_;  // by source; empty when reads are not direct
  std::uint64_t pool_limit_ = 0;

  mutable std::mutex mutex_;
  SlotTable slots_;
  std::uint64_t budget_;
  std::uint64_t live_bytes_ = 0;
  BufferPool pool_;
  std::unordered_map<std::size_t, LoadPtr> loading_;
  PagerStats totals_;
  std::unordered_map<std::size_t, PagerStats> per_slot_;  // of slots that were ever loaded; hits are in the slot
  std::size_t first_slot_;                                // acquired since the statistics began; size() when none
  bool closed_ = false;
  std::unique_ptr<std::condition_variable> room_;  // strict: memory came free
  std::atomic<std::uint32_t> room_waiters_{0};

  int process_;  // to notice a fork
  std::vector<std::thread> readers_;
  bool stopping_ = false;
  std::unique_ptr<std::condition_variable> work_;  // for readers
  std::unique_ptr<std::condition_variable> idle_;  // for finish_prefetch()
  std::deque<LoadPtr> to_help_;                    // loads that somebody waits for, with chunks to read
  std::deque<LoadPtr> demanded_;                   // loads of acquire_many() that nobody leads yet
  std::deque<std::size_t> prefetch_queue_;
  std::size_t prefetching_ = 0;         // loads the readers lead
  std::atomic<std::size_t> demand_{0};  // sizes of to_help_ and demanded_, to look at between chunks
};

}  // namespace weightstore::pager
