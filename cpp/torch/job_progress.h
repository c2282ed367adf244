#pragma once

// How far a save or a load has come: for other threads, which cannot be called back.

#include <atomic>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "weightstore/progress.h"

namespace weightstore::torch_bridge {

// Thread-safe.
class JobProgress {
 public:
  // For the job that begins now; what was said about the one before is forgotten.
  Progress begin() {
    done_ = 0;
    total_ = 0;
    cancelled_ = false;
    return [this](std::uint64_t done, std::uint64_t total, std::string_view) {
      done_ = static_cast<std::int64_t>(done);
      total_ = static_cast<std::int64_t>(total);
      return !cancelled_;
    };
  }

  // Bytes done, and bytes in all.
  std::tuple<std::int64_t, std::int64_t> get() const { return {done_.load(), total_.load()}; }
  // Ends the job that is running, soon.
  void cancel() { cancelled_ = true; }

 private:
  std::atomic<std::int64_t> done_ = 0;
  std::atomic<std::int64_t> total_ = 0;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace weightstore::torch_bridge
