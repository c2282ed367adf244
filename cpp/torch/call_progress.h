#pragma once

// The progress of a save or a load, for other threads to poll: TorchScript has no callbacks.

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>

#include "weightstore/progress.h"

namespace weightstore::torch_bridge {

// Thread-safe.
class CallProgress {
 public:
  // For a call that begins now. Forgets the progress and the cancellation of an earlier call.
  Progress begin() {
    set(0, 0, "");
    cancelled_ = false;
    return [this](std::uint64_t done, std::uint64_t total, std::string_view name) {
      set(done, total, name);
      return !cancelled_;
    };
  }

  // Bytes done, bytes in all, and the last name.
  std::tuple<std::int64_t, std::int64_t, std::string> get() const {
    const std::lock_guard lock(mutex_);
    return {done_, total_, name_};
  }
  // Ends the running call soon.
  void cancel() { cancelled_ = true; }

 private:
  void set(std::uint64_t done, std::uint64_t total, std::string_view name) {
    const std::lock_guard lock(mutex_);
    done_ = static_cast<std::int64_t>(done);
    total_ = static_cast<std::int64_t>(total);
    name_ = name;
  }

  mutable std::mutex mutex_;
  std::int64_t done_ = 0;
  std::int64_t total_ = 0;
  std::string name_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace weightstore::torch_bridge
