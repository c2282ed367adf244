#include "io/page_cache.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

namespace weightstore::io {
namespace {

constexpr std::uint64_t kSample = 64 << 10;

std::uint64_t page_bytes() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

std::uint64_t pages_in(std::uint64_t offset, std::uint64_t length) {
  const std::uint64_t page = page_bytes();
  return (offset + length + page - 1) / page - offset / page;
}

// Around three quarters the missing pages cost as much through the cache as everything does around it.
bool enough(std::uint64_t cached, std::uint64_t pages) { return cached >= pages - pages / 4; }

}  // namespace

std::optional<std::uint64_t> cached_pages_by_cachestat(int fd, std::uint64_t offset, std::uint64_t length,
                                                       FileOps& ops) {
  if (length == 0) return 0;  // the call would take this for "to the end"
  std::uint64_t cached = 0;
  if (ops.cachestat(fd, offset, length, &cached) != 0) return std::nullopt;
  return cached;
}

std::optional<std::uint64_t> cached_pages_by_mincore(int fd, std::uint64_t offset, std::uint64_t length, FileOps& ops) {
  if (length == 0) return 0;
  const std::uint64_t page = page_bytes();
  const std::uint64_t begin = offset / page * page;
  const std::uint64_t bytes = offset + length - begin;
  void* address = ops.mmap(bytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(begin));
  if (address == MAP_FAILED) return std::nullopt;
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  const int failed = ops.mincore(address, bytes, pages.data());
  ops.munmap(address, bytes);
  if (failed != 0) return std::nullopt;
  std::uint64_t cached = 0;
  for (const unsigned char state : pages) cached += state & 1;
  return cached;
}

bool mostly_cached(int fd, std::uint64_t offset, std::uint64_t length, FileOps& ops) {
  if (length == 0) return true;
  if (const auto cached = cached_pages_by_cachestat(fd, offset, length, ops)) {
    return enough(*cached, pages_in(offset, length));
  }
  // mincore(2) over all of it takes about as long as reading it; three places speak for the rest.
  const std::uint64_t sample = std::min(length, kSample);
  std::uint64_t cached = 0;
  std::uint64_t pages = 0;
  for (const std::uint64_t at : {offset, offset + (length - sample) / 2, offset + length - sample}) {
    const auto found = cached_pages_by_mincore(fd, at, sample, ops);
    if (!found) return true;
    cached += *found;
    pages += pages_in(at, sample);
  }
  return enough(cached, pages);
}

}  // namespace weightstore::io
