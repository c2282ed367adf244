#pragma once

// One tensor that is being read into memory.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include "io/direct_file.h"
#include "pager/deadline.h"
#include "pager/frame.h"
#include "weightstore/byte_source.h"

namespace weightstore::pager {

using Failure = std::function<void()>;  // throws an error when it is called; empty when nothing failed

// Where the bytes of a tensor are, and how they are read.
struct LoadPlan {
  const ByteSource* source = nullptr;
  io::DirectFile* direct = nullptr;  // null: the reads use the page cache
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  // Unused bytes at the beginning of the buffer. They give the tensor the same position inside a memory page as it has
  // inside a page of the file. O_DIRECT needs that to read into place, and copies from the page cache are fast that
  // way.
  std::uint64_t padding = 0;

  static LoadPlan make(const ByteSource& source, io::DirectFile* direct, std::uint64_t offset, std::uint64_t size);
  // How large the buffer must be.
  std::uint64_t buffer_bytes() const;
};

// The load of one tensor. One thread runs the load; other threads can help by reading chunks of it. The functions are
// thread-safe unless they say otherwise; the public fields are guarded by the pager's mutex.
class Load {
 public:
  Load(std::uint32_t tensor, bool prefetch) : tensor_(tensor), prefetch_(prefetch) {}
  // Makes a new load of one that has ended, that no other thread has seen, and that read without an error.
  void begin_again(std::uint32_t tensor);

  std::uint32_t tensor() const { return tensor_; }
  bool is_prefetch() const { return prefetch_; }

  // Splits the read into chunks; other threads can help from now on. `memory` has plan.buffer_bytes() bytes. Called
  // once, by the thread that runs the load.
  void start(const LoadPlan& plan, std::byte* memory);
  // Whether there are chunks that no thread has taken yet.
  bool has_chunks() const;
  std::size_t chunks() const { return chunk_count_; }
  // Reads chunks until none is left or `pause` returns true. Keeps errors for finish().
  void read(const std::function<bool()>& pause = {});
  // Keeps an error for finish(), and skips the chunks that no thread has begun. The first error counts.
  void fail(std::exception_ptr error);
  // Waits until the helping threads have read their chunks, and throws the first error. Called by the thread that runs
  // the load, after read().
  void finish();
  // About how many bytes of the tensor have been read.
  std::uint64_t bytes_begun() const;

  // ---- under the pager's mutex -----------------------------------------------------------------------------------
  bool is_running = false;    // a thread runs this load, or has run it
  bool is_reserved = false;   // its memory is reserved
  bool is_shared = false;     // other threads may have seen it
  bool is_done = false;       // it has a result, or it failed, or it was cancelled
  std::uint32_t waiters = 0;  // callers that get a reference to the result
  Failure failure;            // what went wrong with the reading
  std::condition_variable done;
  // The reserved memory, until the frame gets it.
  std::uint64_t charge = 0;
  SharedMutableBytes buffer;
  std::unique_ptr<Frame> frame;  // one to be used again; most often null
  bool has_result = false;       // the tensor was loaded, and every waiter has a reference
  Clock::time_point ended;       // when the thread that ran the load was done with it

 private:
  void read_chunk(std::uint64_t chunk) const;

  std::uint32_t tensor_;
  bool prefetch_;
  LoadPlan plan_;
  std::byte* memory_ = nullptr;
  std::uint64_t chunk_bytes_ = 0;
  std::uint64_t chunk_count_ = 0;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> remaining_{0};
  std::atomic<bool> started_{false};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // written by the thread that set failed_
};

using LoadPtr = std::shared_ptr<Load>;

}  // namespace weightstore::pager
