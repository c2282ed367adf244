#pragma once

// Memory that processes of one machine share, and waiting for what others do in it.

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "weightstore/byte_source.h"

namespace weightstore::io {

// Maps memory behind a descriptor, such as that of memfd_create(2), which must have `size` bytes at least. Zeroed until
// a process writes to it.
class SharedMemory {
 public:
  SharedMemory(int fd, std::size_t size);  // throws Error(kIo)
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  MutableBytes bytes() const { return {static_cast<std::byte*>(address_), size_}; }

 private:
  void* address_;
  std::size_t size_;
};

// Waits until another process changes `word` and calls wake_all(), or until the time is over. May return early.
void wait_while_equal(std::atomic<std::uint32_t>& word, std::uint32_t value, std::chrono::milliseconds timeout);
void wake_all(std::atomic<std::uint32_t>& word);

// Whether the process behind a descriptor of pidfd_open(2) has ended. Not whether its parent has seen that.
bool has_ended(int pidfd);

}  // namespace weightstore::io
