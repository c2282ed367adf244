#include "io/memory/shared_memory.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

#include "io/checked_io.h"

namespace weightstore::io {

SharedMemory::SharedMemory(int fd, std::size_t size) : size_(size) {
  address_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address_ == MAP_FAILED) throw io_error(errno, "cannot map the memory that the ranks of a machine share", "");
}

SharedMemory::~SharedMemory() { ::munmap(address_, size_); }

void wait_while_equal(std::atomic<std::uint32_t>& word, std::uint32_t value, std::chrono::milliseconds timeout) {
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(word) == sizeof(std::uint32_t));
  const timespec time{static_cast<time_t>(timeout.count() / 1000),
                      static_cast<long>(timeout.count() % 1000 * 1'000'000)};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool has_ended(int pidfd) {
  pollfd watched{pidfd, POLLIN, 0};
  return ::poll(&watched, 1, 0) == 1 && (watched.revents & POLLIN) != 0;
}

}  // namespace weightstore::io
