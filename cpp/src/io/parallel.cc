#include "io/parallel.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "weightstore/error.h"

namespace weightstore::io {
namespace {

constexpr auto kWatchInterval = std::chrono::milliseconds(50);

// What the workers of one run share with the thread that started them.
class Run {
 public:
  void work(unsigned worker, const std::function<void(unsigned, const StopFlag&)>& body) {
    try {
      body(worker, stop_);
    } catch (...) {
      fail(std::current_exception());
    }
    const std::lock_guard lock(mutex_);
    --running_;
    ended_.notify_one();
  }

  void started() {
    const std::lock_guard lock(mutex_);
    ++running_;
  }

  void not_started(std::exception_ptr error) {
    fail(std::move(error));
    const std::lock_guard lock(mutex_);
    --running_;
  }

  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (first_error_ == nullptr) first_error_ = std::move(error);
    stop_.set();
  }

  void wait(const std::function<void()>& watch) {
    std::unique_lock lock(mutex_);
    while (running_ > 0) {
      if (!watch || stop_.is_set()) {
        ended_.wait(lock);
        continue;
      }
      if (ended_.wait_for(lock, kWatchInterval) == std::cv_status::no_timeout) continue;
      lock.unlock();
      try {
        watch();
      } catch (...) {
        fail(std::current_exception());
      }
      lock.lock();
    }
  }

  // Only after all threads were joined.
  void rethrow() const {
    if (first_error_ != nullptr) std::rethrow_exception(first_error_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  unsigned running_ = 0;
  std::exception_ptr first_error_;
  StopFlag stop_;
};

}  // namespace

void run_parallel(unsigned workers, const std::function<void(unsigned, const StopFlag&)>& work,
                  const std::function<void()>& watch) {
  Run run;
  const unsigned first = workers > 0 && !watch ? 1 : 0;  // of the threads to start
  {
    std::vector<std::jthread> threads;
    threads.reserve(workers);
    for (unsigned worker = first; worker < workers; ++worker) {
      run.started();
      try {
        threads.emplace_back([&run, &work, worker] { run.work(worker, work); });
      } catch (const std::system_error& error) {
        run.not_started(
            std::make_exception_ptr(Error(ErrorCode::kIo, "cannot start thread " + std::to_string(worker + 1) + " of " +
                                                              std::to_string(workers) + "; ask for fewer threads")
                                        .with_errno(error.code().value())));
        break;
      }
    }
    if (first == 1) {
      run.started();
      run.work(0, work);
    }
    run.wait(watch);
  }
  run.rethrow();
}

unsigned default_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = ::sched_getaffinity(0, sizeof set, &set) == 0;
  const unsigned processors = known ? static_cast<unsigned>(CPU_COUNT(&set)) : std::thread::hardware_concurrency();
  return std::clamp(processors, 2u, 8u);
}

}  // namespace weightstore::io
