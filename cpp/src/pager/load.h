#pragma once

// One tensor on its way into memory.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "io/direct_file.h"
#include "weightstore/byte_source.h"

namespace weightstore::pager {

struct Block;

// Where a tensor is, and how its bytes are had. `direct` is null when they come through the page cache.
struct LoadPlan {
  const ByteSource* source = nullptr;
  io::DirectFile* direct = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  // Bytes before it in its buffer. A file's tensor lies in its page as it lies in the file's, so that O_DIRECT can read
  // it into place, and copies out of the page cache run at full speed.
  std::uint64_t padding = 0;

  static LoadPlan make(const ByteSource& source, io::DirectFile* direct, std::uint64_t offset, std::uint64_t size);
  // What its buffer must hold.
  std::uint64_t buffer_bytes() const;
};

// A load in flight. One thread leads it; the others that take part read chunks, or wait. read() is thread-safe; the
// fields below it belong to the pager's mutex.
class Load {
 public:
  Load(std::uint32_t slot, bool prefetch) : slot_(slot), prefetch_(prefetch) {}

  std::uint32_t slot() const { return slot_; }
  bool is_prefetch() const { return prefetch_; }

  // By the leader, once: from here on others may help. `buffer` has plan.buffer_bytes().
  void start(const LoadPlan& plan, std::byte* buffer);
  // Whether a helper would find something to do.
  bool has_chunks() const;
  std::size_t chunks() const { return chunk_count_; }
  // Reads chunks until none is left or, when given, `pause` says to. Errors are kept for finish().
  void read(const std::function<bool()>& pause = {});
  // Keeps an error for finish(), unless there is one; what has not been read is left out.
  void fail(std::exception_ptr error);
  // By the leader: waits for the helpers, and throws the first error.
  void finish();
  std::uint64_t bytes_begun() const;  // of plan.size, about

  // ---- under the pager's mutex -----------------------------------------------------------------------------------
  bool led = false;
  bool reserved = false;
  std::uint32_t waiters = 0;  // each gets a reference to the result
  bool done = false;
  std::function<void()> raise;  // throws what went wrong with the reading; empty when nothing did
  std::condition_variable ended;
  // What was reserved, until the block has it.
  std::uint64_t charge = 0;
  SharedMutableBytes buffer;
  Block* result = nullptr;

 private:
  void read_chunk(std::uint64_t chunk) const;

  const std::uint32_t slot_;
  const bool prefetch_;
  LoadPlan plan_;
  std::byte* memory_ = nullptr;
  std::uint64_t chunk_bytes_ = 0;
  std::uint64_t chunk_count_ = 0;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> remaining_{0};
  std::atomic<bool> started_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // written by the one that set failed_
};

}  // namespace weightstore::pager
