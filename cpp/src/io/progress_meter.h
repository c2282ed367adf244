#pragma once

// One scale of progress for an operation that has several parts or threads.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "weightstore/error.h"
#include "weightstore/progress.h"

namespace weightstore::io {

// Any thread may count. Only the thread that called the operation may report, because that is where the caller's
// Progress is to be called from. Until the end, reports stay below the total, so that the caller sees done == total
// once. Without a Progress nothing is reported, and names are not kept.
class ProgressMeter {
 public:
  // `progress` must outlive the meter. `cancelled` is the message of the Error(kCancelled) that report() and
  // report_total() throw when the caller asks to stop.
  ProgressMeter(const Progress& progress, std::uint64_t total, std::string cancelled)
      : progress_(progress), total_(total), cancelled_(std::move(cancelled)) {}

  // Counts bytes that are done, of the tensor called `name`. Thread-safe.
  void add(std::uint64_t bytes, std::string_view name) {
    done_ += bytes;
    if (!progress_) return;
    const std::lock_guard lock(mutex_);
    name_ = name;
  }

  // A Progress for a part of the operation that has `bytes` to count and works on one thread. The first bytes that the
  // part has beyond these, such as the header of a file, are not counted.
  Progress counting(std::uint64_t bytes) {
    return [this, bytes, counted = std::uint64_t{0}](std::uint64_t done, std::uint64_t all,
                                                     std::string_view name) mutable {
      const std::uint64_t header = all - bytes;
      const std::uint64_t now = done > header ? done - header : 0;
      add(now - counted, name);
      counted = now;
      return true;
    };
  }

  // The same for a part on the caller's thread: each count is reported.
  Progress reporting(std::uint64_t bytes) {
    return [this, count = counting(bytes)](std::uint64_t done, std::uint64_t all, std::string_view name) {
      count(done, all, name);
      report();
      return true;
    };
  }

  // The same for a part of which the size becomes known when it reports; the size is added to the total then.
  Progress reporting() {
    return [this, part = Progress()](std::uint64_t done, std::uint64_t all, std::string_view name) mutable {
      if (!part) {
        total_ += all;
        part = reporting(all);
      }
      return part(done, all, name);
    };
  }

  void report() { tell(std::min(done_.load(), total_ == 0 ? 0 : total_ - 1)); }

  // Everything is done. The caller may still stop the operation.
  void report_total() { tell(total_); }

  // Everything is done, and the operation cannot be stopped any more: the caller's answer is ignored.
  void report_finished() {
    if (progress_) progress_(total_, total_, name());
  }

 private:
  std::string name() const {
    const std::lock_guard lock(mutex_);
    return name_;
  }

  void tell(std::uint64_t done) {
    if (progress_ && !progress_(done, total_, name())) throw Error(ErrorCode::kCancelled, cancelled_);
  }

  const Progress& progress_;
  std::uint64_t total_;  // changed on the caller's thread only
  const std::string cancelled_;
  std::atomic<std::uint64_t> done_ = 0;
  mutable std::mutex mutex_;  // guards the name
  std::string name_;
};

}  // namespace weightstore::io
