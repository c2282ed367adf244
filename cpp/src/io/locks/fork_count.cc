#include "io/locks/fork_count.h"

#include <pthread.h>

#include <atomic>

namespace weightstore::io {

std::uint32_t fork_count() {
  static std::atomic<std::uint32_t> count{0};
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1, std::memory_order_relaxed); });
  (void)registered;
  return count.load(std::memory_order_relaxed);
}

}  // namespace weightstore::io
