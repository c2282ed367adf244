#pragma once

// A pager keeps some tensors of a model in memory, within a budget. It loads a tensor when a caller acquires it, and
// evicts others when the budget is used up: the least recently used ones, or those that a policy chooses.

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

// Where a tensor is in a raw source, which has no header that says so.
struct TensorEntry {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

struct NamedEntry {
  std::string name;
  TensorEntry entry;
};

// A file as a raw source. The first one is read. The second one is mapped: with PagerOptions::zero_copy, tensors are
// views of the mapping, and eviction gives their pages back to the system. Otherwise a pager copies tensors smaller
// than 64 KiB out of the mapping, which takes half as long as to read them, and reads larger ones. No other program may
// shorten a mapped file: a process that touches a page which is gone is killed. Both keep the file open, and go on with
// it when another file of the same name replaces it. Throw Error(kIo).
std::shared_ptr<const ByteSource> raw_file(const std::filesystem::path& path);
std::shared_ptr<const ByteSource> raw_mapped_file(const std::filesystem::path& path);

// The source ends inside a tensor: of the `needed` bytes at offset(), only `available` exist. Code kIo.
class OffloadEof : public Error {
 public:
  // `more` is appended to the message, for example a list of other tensors with the same problem.
  OffloadEof(std::uint64_t offset, std::uint64_t needed, std::uint64_t available, std::string_view more = {});

  std::uint64_t needed() const { return needed_; }
  std::uint64_t available() const { return available_; }

 private:
  std::uint64_t needed_;
  std::uint64_t available_;
};

// A strict budget has no room for a tensor, and no caller released enough memory in time. Code kLimit.
class BudgetExceeded : public Error {
 public:
  BudgetExceeded(std::uint64_t needed, std::uint64_t budget, std::uint64_t live, std::vector<std::string> holders);

  std::uint64_t needed() const { return needed_; }
  std::uint64_t budget() const { return budget_; }
  // The tensors that could not be evicted because they are held, pinned or being loaded. The largest comes first.
  const std::vector<std::string>& holders() const { return holders_; }

 private:
  std::uint64_t needed_;
  std::uint64_t budget_;
  std::vector<std::string> holders_;
};

inline constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// A budget that uses the available memory without swapping. It takes the system's available memory or what the control
// groups of this process leave, whichever is less, and counts page cache that the kernel can drop as available. It
// keeps a tenth of that in reserve (at least 256 MiB, at most a half).
std::uint64_t automatic_budget();

enum class DirectReads : std::uint8_t {
  kAuto,  // if all tensors together are larger than the available memory, when the pager is made
  kAlways,
  kNever,
};

// Which tensors the pager keeps in memory.
enum class EvictionPolicy : std::uint8_t {
  kLru,  // evicts the least recently used tensor
  // For tensors that are acquired in the same order again and again, as the layers of a model are. The pager learns the
  // order, keeps as many tensors as the budget allows beside a window, and reads the others ahead of their use. Until
  // it knows the order, and when there is none, it evicts the least recently used tensor.
  kCyclic,
  kSchedule,  // the same for an order that the caller gives
};

struct PagerOptions {
  std::uint64_t budget = kUnlimited;
  // The budget changes with the available memory of the system and of the control groups, as automatic_budget() counts
  // it. The pager looks about once a second while tensors are acquired. It gives memory back at once when a tenth of
  // the budget or more is missing, and takes more when the budget could grow by a quarter.
  bool follow_memory = false;
  // false (best effort): the budget limits resident_bytes(). Tensors that callers still hold after their eviction, and
  // tensors that are being loaded, do not count. A tensor that does not fit is loaded anyway.
  // true: the budget limits live_bytes(), which counts all of them.
  bool strict = false;
  // Strict only: how long acquire() waits for other callers to release memory before it throws BudgetExceeded.
  std::chrono::milliseconds wait = std::chrono::seconds(10);
  DirectReads direct = DirectReads::kAuto;
  // The number of reader threads, 1 to 64. They prefetch, and help to read tensors larger than a few MiB.
  unsigned readers = 2;
  // Give callers views of a mapped file, or of a source that is memory, instead of copies. To load a tensor then means
  // to bring its pages into memory; to evict it gives the pages back to the system.
  bool zero_copy = false;
  std::vector<std::string> pinned;  // names of tensors to pin
  EvictionPolicy policy = EvictionPolicy::kLru;
  std::vector<std::string> schedule;  // kSchedule: the names in the order of their use; a name may occur several times
  // kCyclic and kSchedule: tensors that are not kept are read through a window, a part of the budget. It has a quarter
  // of the budget but at most 64 MiB; or this many bytes, if that is more. 0 stands for twice the largest tensor.
  // Tensors that callers hold at the same time should fit twice.
  std::uint64_t window = 0;
};

// Counters since the pager was made, or since reset_stats(). The counters of one tensor leave out what only the whole
// pager has: errors about unknown names, over_budget_events, peak_live_bytes and pass_count.
struct PagerStats {
  std::uint64_t hits = 0;             // acquires of a resident tensor
  std::uint64_t misses = 0;           // acquires that began a load
  std::uint64_t coalesced_waits = 0;  // acquires that waited for a load which was already going on
  std::uint64_t resurrected = 0;      // acquires of an evicted tensor that a caller still held; nothing was read
  std::uint64_t errors = 0;           // acquires that failed
  std::uint64_t loads = 0;
  std::uint64_t load_errors = 0;
  std::uint64_t evictions = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_evicted = 0;
  std::uint64_t prefetch_issued = 0;   // tensors that were queued
  std::uint64_t prefetch_used = 0;     // acquired after the prefetch was complete
  std::uint64_t prefetch_late = 0;     // acquired before the prefetch was complete
  std::uint64_t prefetch_wasted = 0;   // evicted, or no longer expected, before anybody acquired them
  std::uint64_t prefetch_skipped = 0;  // not loaded, because there was no room
  std::uint64_t wait_ns = 0;           // the time that acquires waited
  std::uint64_t load_ns = 0;           // the time that loads took, including the checksums
  std::uint64_t checksum_ns = 0;
  std::uint64_t over_budget_events = 0;  // loads after which the pager was over its budget
  std::uint64_t peak_live_bytes = 0;
  std::uint64_t pass_count = 0;  // how often the tensor that was acquired first was acquired again
};

namespace pager {
class PagerImpl;
struct TensorState;
}  // namespace pager

// A tensor that a caller has acquired. Its bytes stay valid and in place until it is released, even when the pager
// evicts the tensor or is destroyed. Move-only. Used by one thread at a time.
class ResidentTensor {
 public:
  ResidentTensor() = default;
  ResidentTensor(ResidentTensor&& other) noexcept;
  ResidentTensor& operator=(ResidentTensor&& other) noexcept;
  ~ResidentTensor() { release(); }

  explicit operator bool() const { return state_ != nullptr; }
  ConstBytes bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  std::size_t slot() const { return slot_; }

  // Another handle of the same tensor, to be released by itself.
  ResidentTensor clone() const;
  // The bytes with an owner of their own. The owner holds the tensor, independently of this object.
  SharedBytes share() const;
  // The same as writable memory, for libraries that know no read-only memory. For a tensor that was read into a buffer,
  // this is the pager's own buffer: other callers see what is written there. For a view of a mapped file, it is a
  // copy-on-write view. nullopt for a view of a source that is memory.
  std::optional<SharedMutableBytes> share_writable() const;
  void release() noexcept;

 private:
  friend class Pager;
  explicit ResidentTensor(pager::TensorState* state);  // takes over one reference

  pager::TensorState* state_ = nullptr;
  ConstBytes bytes_;
  std::size_t slot_ = 0;
};

// Thread-safe. Callers name a tensor by its slot, a number from 0 to table().size() - 1: the tensor's number in the
// Reader or, in a raw source, its rank by offset.
//
// A tensor is resident while it is in the pager's table. On a miss the pager reads the tensor first; when that has
// succeeded, it puts the tensor into the table and evicts others, as the policy says. A read that fails evicts
// nothing. (A strict budget makes room before the read.) If several callers want a tensor that is being read, they
// share the read: all get the same bytes or the same error. The pager never evicts pinned tensors, but it loads them
// only when they are acquired.
//
// Eviction takes a tensor off the table; its memory stays as long as a caller holds the tensor. If it is acquired again
// while a caller still holds it, it becomes resident again and is not read.
//
// A process made by fork(2) can go on with the pager. Resident tensors stay resident there; loads that other threads
// had begun are begun again. Call before_fork() and after_fork() when other threads, also the pager's reader threads,
// may be running at that time.
class Pager {
 public:
  // The tensors of a raw source. Throws OffloadEof that names every entry which ends after the source, and
  // Error(kNotFound) that names every unknown name in options.pinned.
  Pager(std::shared_ptr<const ByteSource> source, std::span<const NamedEntry> entries, PagerOptions options = {});
  // The tensors of an open file or set of shards. The pager compares a checksum when it loads the tensor for the first
  // time, unless the reader was opened without verification.
  explicit Pager(Reader reader, PagerOptions options = {});
  // Opens a file, or the index of a set of shards, with lazy verification. With zero_copy the file is mapped.
  explicit Pager(const std::filesystem::path& path, PagerOptions options = {});
  // As close().
  ~Pager();
  Pager(const Pager&) = delete;
  Pager& operator=(const Pager&) = delete;

  // Names, sizes and places of the tensors. The slots are this table's tensor numbers. The tensors of a raw source are
  // one-dimensional and of type U8.
  const TensorTable& table() const;
  // The slot of a name. Throws Error(kNotFound) that suggests similar names.
  std::size_t slot(std::string_view name) const;

  // Loads the tensor unless it is resident, and holds it for the caller. Throws an Error that names the source and the
  // tensor: OffloadEof, kIo with errno, kCorrupt (wrong checksum), kNotFound; with a strict budget also BudgetExceeded,
  // after `wait` or PagerOptions::wait. After an error the next call tries again.
  //
  // `progress` is called about twenty times a second while the call waits or reads, between chunks of a few MiB. It can
  // cancel the call; other callers that wait for the same tensor then read it themselves.
  ResidentTensor acquire(std::size_t slot, std::optional<std::chrono::milliseconds> wait,
                         const Progress& progress = {});
  ResidentTensor acquire(std::string_view name, std::optional<std::chrono::milliseconds> wait,
                         const Progress& progress = {});
  // The same without further arguments: to pass them takes as long as half of a hit.
  ResidentTensor acquire(std::size_t slot);
  ResidentTensor acquire(std::string_view name);
  // The tensor if it is resident; otherwise an empty ResidentTensor. Never waits for a load.
  ResidentTensor try_acquire(std::size_t slot);
  // Acquires several tensors and returns them in this order. Missing tensors are read at the same time; with a strict
  // budget, one after another. When one fails, the call throws its error and holds none.
  std::vector<ResidentTensor> acquire_many(std::span<const std::size_t> slots,
                                           std::optional<std::chrono::milliseconds> wait = std::nullopt,
                                           const Progress& progress = {});

  // Lets the reader threads load these tensors in this order, after all loads that callers wait for. A tensor that is
  // resident becomes the most recently used one. The pager skips tensors that do not fit next to pinned tensors and
  // unused prefetches. Read errors are not reported: the next acquire() tries again and reports its own.
  void prefetch(std::span<const std::size_t> slots);
  // Waits until all prefetches are complete. `progress` can cancel the waiting, but not the prefetches.
  void finish_prefetch(const Progress& progress = {});

  // Pins are counted: each pin() needs its own unpin(). Throws Error(kInvalidArgument) when the tensor is not pinned.
  void pin(std::size_t slot);
  void unpin(std::size_t slot);

  // Evicts one tensor. False when it is not resident, or is pinned.
  bool evict(std::size_t slot);
  // Evicts all tensors that are not pinned, cancels queued prefetches, and frees the buffers kept for reuse. Returns
  // the number of evicted tensors.
  std::size_t clear();
  // Evicts tensors until the pager is within the new budget, or until only pinned and, with a strict budget, held
  // tensors are left. `follow` is PagerOptions::follow_memory from now on.
  void set_budget(std::uint64_t bytes, bool follow = false);
  // Evicts everything, and waits for the reads of the reader threads. From now on acquire() throws
  // Error(kInvalidArgument). Tensors that callers hold stay valid.
  void close();

  bool is_resident(std::size_t slot) const;
  bool is_pinned(std::size_t slot) const;
  std::uint64_t resident_bytes() const;
  std::size_t resident_count() const;
  std::uint64_t budget_bytes() const;
  // All memory in use: tensors that are resident, evicted but held, or being loaded, each with the slack of its buffer;
  // and buffers kept for reuse.
  std::uint64_t live_bytes() const;
  // By how many bytes resident_bytes() (strict: live_bytes()) exceeds the budget.
  std::uint64_t over_budget_bytes() const;
  // Whether reads bypass the page cache where the file system allows it.
  bool reads_directly() const;
  // What the eviction policy does at the moment, as text for people.
  std::string policy_state() const;

  PagerStats stats() const;
  PagerStats stats(std::size_t slot) const;
  void reset_stats();

  // Call these right before and right after fork(2), on the thread that forks; after_fork() in both processes. All
  // other calls wait meanwhile.
  void before_fork();
  void after_fork();

 private:
  std::shared_ptr<pager::PagerImpl> impl_;
};

}  // namespace weightstore
