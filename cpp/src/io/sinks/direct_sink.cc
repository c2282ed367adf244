#include <fcntl.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "io/checked_io.h"
#include "io/copy_bytes.h"
#include "io/huge_buffer.h"
#include "io/sinks/file_sink.h"

// The calling thread fills chunks in file order and queues them; the writers take them from the queue. A chunk is owned
// by exactly one of: the free list, the calling thread, the queue, a writer. Every chunk but the last is written whole;
// the last is rounded up to the alignment, and finish() cuts the file to its length again.

namespace weightstore::io {
namespace {

constexpr std::size_t kChunks = 6;
constexpr std::size_t kWriters = 2;

class DirectSink final : public FileSink {
 public:
  // Takes `direct`, and closes it in the end.
  DirectSink(FileRange range, int direct, FileOps& ops)
      : ops_(ops),
        fd_(range.fd),
        direct_(direct),
        size_(range.file_size),
        path_(std::move(range.path)),
        memory_(allocate_bulk(kChunks * kChunkBytes)),
        position_(range.begin) {
    for (std::size_t i = 0; i < kChunks; ++i) free_.push_back(memory_.bytes.data() + i * kChunkBytes);
  }

  ~DirectSink() override {
    stop(std::exception_ptr());
    writers_.clear();
    close_quietly(ops_, direct_);
  }

  void start() {
    for (std::size_t i = 0; i < kWriters; ++i) writers_.emplace_back([this] { write_chunks(); });
  }

  MutableBytes space() override {
    if (current_ == nullptr) current_ = take_free();
    return {current_ + filled_, kChunkBytes - filled_};
  }

  void advance(std::size_t count) override {
    filled_ += count;
    if (filled_ == kChunkBytes) queue_current();
  }

  void append(ConstBytes bytes) override {
    while (!bytes.empty()) {
      const MutableBytes to = space();
      const std::size_t count = std::min(to.size(), bytes.size());
      copy_bytes(to.data(), bytes.data(), count);
      advance(count);
      bytes = bytes.subspan(count);
    }
  }

  void flush() override {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return free_.size() == kChunks || error_ != nullptr; });
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

  void finish() override {
    if (filled_ > 0) {
      const std::size_t rounded = (filled_ + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
      std::memset(current_ + filled_, 0, rounded - filled_);
      filled_ = rounded;
      queue_current();
    }
    drain();
    if (retry_interrupted([&] { return ops_.ftruncate(fd_, static_cast<off_t>(size_)); }) != 0) {
      throw io_error(errno, "cannot set the length of the file", path_);
    }
  }

 private:
  struct Chunk {
    std::byte* data;
    std::size_t length;
    std::uint64_t offset;
  };

  std::byte* take_free() {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return !free_.empty() || error_ != nullptr; });
    if (error_ != nullptr) std::rethrow_exception(error_);
    std::byte* chunk = free_.back();
    free_.pop_back();
    return chunk;
  }

  void queue_current() {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({current_, filled_, position_});
    }
    queued_.notify_one();
    position_ += filled_;
    filled_ = 0;
    current_ = nullptr;
  }

  // Waits until the writers have written everything. They end by themselves once the queue is empty.
  void drain() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    queued_.notify_all();
    writers_.clear();
    if (error_ != nullptr) std::rethrow_exception(error_);
  }

  // Ends the writers early; what is queued is dropped.
  void stop(std::exception_ptr error) {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      queue_.clear();
      if (error_ == nullptr) error_ = std::move(error);
    }
    queued_.notify_all();
    freed_.notify_all();
  }

  void write_chunks() {
    for (;;) {
      Chunk chunk;
      {
        std::unique_lock lock(mutex_);
        queued_.wait(lock, [&] { return !queue_.empty() || ending_; });
        if (queue_.empty()) return;
        chunk = queue_.front();
        queue_.pop_front();
      }
      try {
        write_chunk(chunk);
      } catch (...) {
        stop(std::current_exception());
        return;
      }
      {
        const std::lock_guard lock(mutex_);
        free_.push_back(chunk.data);
      }
      freed_.notify_one();
    }
  }

  // What a direct write leaves - all of it, where the file system accepts the flag but not the writes; an odd rest
  // after a short one - goes through the page cache, whose errors are final.
  void write_chunk(const Chunk& chunk) {
    std::size_t done = 0;
    while (done < chunk.length && done % kDirectAlignment == 0) {
      const ssize_t n = retry_interrupted([&] {
        return ops_.pwrite(direct_, chunk.data + done, chunk.length - done, static_cast<off_t>(chunk.offset + done));
      });
      if (n < 0 && errno != EINVAL) throw io_error(errno, "cannot write", path_).at_offset(chunk.offset + done);
      if (n <= 0) break;
      done += static_cast<std::size_t>(n);
    }
    write_fully(ops_, fd_, {chunk.data + done, chunk.length - done}, chunk.offset + done, path_);
  }

  FileOps& ops_;
  const int fd_;
  const int direct_;
  const std::uint64_t size_;
  const std::string path_;
  SharedMutableBytes memory_;

  std::byte* current_ = nullptr;  // the calling thread's chunk
  std::size_t filled_ = 0;
  std::uint64_t position_;  // where current_ belongs

  std::mutex mutex_;  // guards what follows
  std::condition_variable queued_;
  std::condition_variable freed_;
  std::vector<std::byte*> free_;
  std::deque<Chunk> queue_;
  std::exception_ptr error_;
  bool ending_ = false;

  std::vector<std::jthread> writers_;
};

}  // namespace

std::unique_ptr<FileSink> direct_sink(FileRange range, FileOps& ops) {
  const int direct = reopen_direct(ops, range.fd, O_WRONLY);
  if (direct < 0) return nullptr;
  std::unique_ptr<DirectSink> sink;
  try {
    sink = std::make_unique<DirectSink>(std::move(range), direct, ops);
  } catch (...) {
    close_quietly(ops, direct);
    throw;
  }
  try {
    sink->start();
  } catch (const std::system_error&) {
    return nullptr;  // no threads to be had
  }
  return sink;
}

}  // namespace weightstore::io
