#pragma once

// A budget of memory over the tensors of any source: loads them when they are acquired, keeps those used last, and lets
// the others go.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/byte_source.h"
#include "weightstore/error.h"
#include "weightstore/progress.h"
#include "weightstore/reader.h"
#include "weightstore/tensor.h"

namespace weightstore {

// Where a tensor lies in a source that has no header of its own.
struct TensorEntry {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

struct NamedEntry {
  std::string name;
  TensorEntry entry;
};

// The source ends inside a tensor: `available` of the `needed` bytes at offset() are there. Code kIo.
class OffloadEof : public Error {
 public:
  // `more` follows the sentence, such as a list of other tensors with the same trouble.
  OffloadEof(std::uint64_t offset, std::uint64_t needed, std::uint64_t available, std::string_view more = {});

  std::uint64_t needed() const { return needed_; }
  std::uint64_t available() const { return available_; }

 private:
  std::uint64_t needed_;
  std::uint64_t available_;
};

// A strict budget has no room for a tensor, and nothing was released in time. Code kLimit.
class BudgetExceeded : public Error {
 public:
  BudgetExceeded(std::uint64_t needed, std::uint64_t budget, std::uint64_t live, std::vector<std::string> holders);

  std::uint64_t needed() const { return needed_; }
  std::uint64_t budget() const { return budget_; }
  // Tensors that could not be let go because they are held, pinned or being loaded; the largest first.
  const std::vector<std::string>& holders() const { return holders_; }

 private:
  std::uint64_t needed_;
  std::uint64_t budget_;
  std::vector<std::string> holders_;
};

inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// The memory that this process can use without swapping: the least of the system's available memory and what its
// control groups leave, page cache that can be dropped included, less a reserve of a tenth (256 MiB at least, a half at
// most).
std::uint64_t automatic_budget();

enum class DirectReads : std::uint8_t {
  kAuto,  // when the tensors together exceed the memory that is available as the pager is made
  kAlways,
  kNever,
};

struct PagerOptions {
  std::uint64_t budget = kUnlimited;
  // Best effort (false): the budget is about resident_bytes(); what callers hold after eviction, and what is loading,
  // is outside of it, and a tensor that does not fit is loaded all the same. Strict: the budget is about live_bytes().
  bool strict = false;
  // Strict only: how long acquire() waits for others to release before it throws BudgetExceeded.
  std::chrono::milliseconds wait = std::chrono::seconds(10);
  DirectReads direct = DirectReads::kAuto;
  unsigned readers = 2;  // threads that prefetch, and help with tensors larger than a few MiB; 1 to 64
  // Hand out views of mapped files and of memory in place of copies. Loading then brings pages in, evicting gives them
  // back.
  bool zero_copy = false;
  std::vector<std::string> pinned;
};

// Counters since the pager was made or reset_stats() was called. Those of one tensor leave out what only the pager as a
// whole has: errors about names, over_budget_events, peak_live_bytes, pass_count.
struct PagerStats {
  std::uint64_t hits = 0;             // acquired while resident
  std::uint64_t misses = 0;           // acquires that began a load
  std::uint64_t coalesced_waits = 0;  // acquires that waited for a load somebody else had begun
  std::uint64_t resurrected = 0;      // acquired after eviction, while somebody still held it: nothing was read
  std::uint64_t errors = 0;           // acquires that failed
  std::uint64_t loads = 0;
  std::uint64_t load_errors = 0;
  std::uint64_t evictions = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_evicted = 0;
  std::uint64_t prefetch_issued = 0;
  std::uint64_t prefetch_used = 0;     // acquired after it was there
  std::uint64_t prefetch_late = 0;     // acquired before it was there
  std::uint64_t prefetch_wasted = 0;   // evicted without having been acquired
  std::uint64_t prefetch_skipped = 0;  // not begun, for want of room
  std::uint64_t wait_ns = 0;           // that acquires waited
  std::uint64_t load_ns = 0;           // that loads took, including the checksum
  std::uint64_t checksum_ns = 0;
  std::uint64_t over_budget_events = 0;  // loads that left more resident than the budget
  std::uint64_t peak_live_bytes = 0;
  std::uint64_t pass_count = 0;  // how often the first tensor that was acquired came round again
};

namespace pager {
class Core;
struct Block;
}  // namespace pager

// A tensor somebody acquired. Its bytes stay where they are until it is released, whatever the pager does meanwhile;
// the pager itself may be gone. Move-only; one thread at a time.
class ResidentTensor {
 public:
  ResidentTensor() = default;
  ResidentTensor(ResidentTensor&& other) noexcept;
  ResidentTensor& operator=(ResidentTensor&& other) noexcept;
  ~ResidentTensor() { release(); }

  explicit operator bool() const { return block_ != nullptr; }
  ConstBytes bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  std::size_t slot() const { return slot_; }

  // The bytes with an owner of their own, which holds the tensor as this does.
  SharedBytes share() const;
  // The same as memory that may be written to, for libraries that know no other: the pager's own buffer, and what is
  // written there is what others find; or a copy-on-write view of a mapped file. nullopt for views of memory.
  std::optional<SharedMutableBytes> share_writable() const;
  void release() noexcept;

 private:
  friend class Pager;
  explicit ResidentTensor(pager::Block* block);  // takes over one reference

  pager::Block* block_ = nullptr;
  ConstBytes bytes_;
  std::size_t slot_ = 0;
};

// Thread-safe. Tensors go by slot, a dense number: a Reader's tensor number, or the rank by offset in a raw source.
//
// Resident tensors are those in the pager's table. On a miss the tensor is read, and published together with the
// eviction of those acquired longest ago; a read that fails evicts nothing. Callers that want a tensor which is being
// loaded wait for that load, and get the same bytes or the same error. Pinned tensors are never evicted, and not loaded
// before they are acquired. Evicting a tensor that somebody holds only takes it off the table; acquired again while it
// is still held, it returns without being read.
//
// In a process made by fork(2) the pager goes on with what was resident; loads that other threads had begun are begun
// anew. before_fork() and after_fork() make that safe when threads, also the pager's own, may be at work.
class Pager {
 public:
  // The tensors of a raw source. Throws OffloadEof naming every entry that the source does not hold, Error(kNotFound)
  // naming every pinned name that is none of them.
  Pager(std::shared_ptr<const ByteSource> source, std::span<const NamedEntry> entries, PagerOptions options = {});
  // The tensors of an open file or set of shards. Checksums are compared on first load unless it was opened without.
  explicit Pager(Reader reader, PagerOptions options = {});
  // Opens a file or the index of a set, with lazy checksums; mapped when zero_copy asks for it.
  explicit Pager(const std::filesystem::path& path, PagerOptions options = {});
  // Waits for reads that are under way. Acquired tensors stay.
  ~Pager();
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;

  // Names, sizes and places; slots are its tensor numbers. A raw source's tensors are rows of U8.
  const TensorTable& table() const;
  // The slot of a name. Throws Error(kNotFound) that suggests near names.
  std::size_t slot(std::string_view name) const;

  // Throws Error with the source and the tensor: OffloadEof, kIo with errno, kCorrupt (checksum), kNotFound; strict
  // also BudgetExceeded, after `wait` when given. The next call tries again. `progress` is called about twenty times a
  // second while the call waits or reads, between parts of a few MiB, and may end it; others who wait for the same
  // tensor then read it themselves.
  ResidentTensor acquire(std::size_t slot, std::optional<std::chrono::milliseconds> wait = std::nullopt,
                         const Progress& progress = {});
  ResidentTensor acquire(std::string_view name, std::optional<std::chrono::milliseconds> wait = std::nullopt,
                         const Progress& progress = {});
  // Only what is resident now; empty otherwise. Never waits for a load.
  ResidentTensor try_acquire(std::size_t slot);
  // All of them, in this order, each as by acquire(); those that are not resident are read at the same time.
  std::vector<ResidentTensor> acquire_many(std::span<const std::size_t> slots,
                                           std::optional<std::chrono::milliseconds> wait = std::nullopt,
                                           const Progress& progress = {});

  // Has tensors loaded by the readers, in this order, demand first. A resident one counts as just used. One for which
  // there is no room beside what is pinned or prefetched but not yet used is skipped. Errors show when it is acquired.
  void prefetch(std::span<const std::size_t> slots);
  // Waits until nothing is left to prefetch. `progress` may end the waiting, not the prefetching.
  void finish_prefetch(const Progress& progress = {});

  // Pins are counted. unpin() of what is not pinned throws Error(kInvalidArgument).
  void pin(std::size_t slot);
  void unpin(std::size_t slot);

  // Takes a tensor off the table. False when it is not resident, or pinned.
  bool evict(std::size_t slot);
  // Evicts everything that is not pinned, cancels prefetches that have not begun, frees recycled buffers; returns how
  // many tensors were evicted.
  std::size_t clear();
  // Evicts until the new budget is kept, as far as pins and, strict, holders allow.
  void set_budget(std::uint64_t bytes);
  // Evicts everything; from now on acquire() throws Error(kInvalidArgument). Waits for reads under way.
  void close();

  bool is_resident(std::size_t slot) const;
  bool is_pinned(std::size_t slot) const;
  std::uint64_t resident_bytes() const;
  std::size_t resident_count() const;
  std::uint64_t budget_bytes() const;
  // Memory in use: resident, evicted but held, loading, with the slack of their buffers; and buffers kept for reuse.
  std::uint64_t live_bytes() const;
  // How far resident_bytes() (strict: live_bytes()) is above the budget.
  std::uint64_t over_budget_bytes() const;
  // Whether reads go around the page cache, where the file system can.
  bool reads_directly() const;

  PagerStats stats() const;
  PagerStats stats(std::size_t slot) const;
  void reset_stats();

  // Around fork(2), from the thread that calls it. Between the two all other calls wait.
  void before_fork();
  void after_fork();

 private:
  std::shared_ptr<pager::Core> core_;
};

}  // namespace weightstore
