#include "io/direct_file.h"

#include <fcntl.h>

#include "io/checked_io.h"
#include "io/page_cache.h"

namespace weightstore::io {

DirectFile::~DirectFile() { close_quietly(ops_, direct_); }

bool DirectFile::is_cold(std::uint64_t offset, std::uint64_t length) const {
  return !mostly_cached(fd_, offset, length, ops_);
}

bool DirectFile::read(std::uint64_t begin, std::uint64_t needed, std::byte* buffer) {
  std::call_once(opened_, [&] { direct_ = reopen_direct(ops_, fd_, O_RDONLY); });
  if (direct_ < 0) refused_.store(true, std::memory_order_relaxed);
  if (!usable()) return false;
  const std::size_t rounded = (needed + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
  std::size_t done = 0;
  while (done < needed) {
    const ssize_t n = retry_interrupted(
        [&] { return ops_.pread(direct_, buffer + done, rounded - done, static_cast<off_t>(begin + done)); });
    if (n < 0 && done == 0) refused_.store(true, std::memory_order_relaxed);
    if (n <= 0) return false;
    done += static_cast<std::size_t>(n);
    // The end of the file, or a device that stopped in the middle of a block: no aligned read can go on from here.
    if (done % kDirectAlignment != 0) break;
  }
  return done >= needed;
}

}  // namespace weightstore::io
