#include "io/huge_buffer.h"

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>

namespace weightstore::io {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kPageBytes = 4096;

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; an older kernel refuses it, and pages come one by one
#endif

constexpr std::size_t round_up(std::size_t n, std::size_t alignment) { return (n + alignment - 1) & ~(alignment - 1); }

// A last page that is only partly used is huge too when that wastes little; else its small pages would take longer to
// touch than everything before it.
std::size_t huge_length(std::size_t size) {
  const std::size_t huge = round_up(size, kHugePage);
  return huge - size <= size / 8 ? huge : round_up(size, kPageBytes);
}

// Asks the kernel for all pages of some memory in one call, which takes half the time of as many page faults. Returns
// whether the kernel could; else pages come one by one as they are written to.
bool provide_pages(std::uintptr_t begin, std::uintptr_t end) {
  begin &= ~(kPageBytes - 1);
  return ::madvise(reinterpret_cast<void*>(begin), round_up(end - begin, kPageBytes), MADV_POPULATE_WRITE) == 0;
}

// Processor time of the calling thread.
PageCosts::Time time_used() {
  timespec used{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

// Makes the pages of a range that are not there yet small ones.
void refuse_huge(std::uintptr_t begin, std::uintptr_t end) {
  begin &= ~(kPageBytes - 1);
  ::madvise(reinterpret_cast<void*>(begin), round_up(end - begin, kPageBytes), MADV_NOHUGEPAGE);
}

struct Unmap {
  std::size_t length;
  void operator()(void* address) const { ::munmap(address, length); }
};

}  // namespace

std::size_t mapped_bytes(std::size_t size) {
  return size >= kHugePage ? huge_length(size) : round_up(size, kPageBytes);
}

SharedMutableBytes allocate_bulk(std::size_t size) {
  if (size == 0) return {};
  if (size > SIZE_MAX / 2) throw std::bad_alloc();
  const bool huge = size >= kHugePage;
  const std::size_t length = mapped_bytes(size);
  // One huge page more than needed, so that an aligned part lies inside; the rest goes back at once.
  const std::size_t reserved = huge ? length + kHugePage : length;
  // MAP_NORESERVE: addresses alone cost nothing, and hash tables take many more than they fill. Without it the kernel
  // would refuse a mapping only when it is larger than all memory and swap of the machine, and would not look at
  // control groups; who fills what it takes asks require_memory() first.
  void* address = ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (huge) {
    const std::uintptr_t aligned = round_up(begin, kHugePage);
    if (aligned > begin) ::munmap(address, aligned - begin);
    if (aligned + length < begin + reserved) {
      ::munmap(reinterpret_cast<void*>(aligned + length), begin + reserved - aligned - length);
    }
    begin = aligned;
    ::madvise(reinterpret_cast<void*>(begin), length, MADV_HUGEPAGE);
  }
  auto* data = reinterpret_cast<std::byte*>(begin);
  return {{data, size}, std::shared_ptr<void>(data, Unmap{length})};
}

void prefer_huge_pages(MutableBytes memory) {
  const std::uintptr_t begin = round_up(reinterpret_cast<std::uintptr_t>(memory.data()), kHugePage);
  const std::uintptr_t end = (reinterpret_cast<std::uintptr_t>(memory.data()) + memory.size()) & ~(kHugePage - 1);
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

void FreshPages::touch(MutableBytes part) {
  auto begin = reinterpret_cast<std::uintptr_t>(part.data());
  const std::uintptr_t end = begin + part.size();
  if (part.size() >= kHugePage) {
    while (begin < end && !costs_.are_too_high()) {
      const std::uintptr_t next = std::min(round_up(begin + 1, kHugePage), end);
      touch_one(begin, next);
      begin = next;
    }
    if (begin == end) return;
    if (known_.empty()) refuse_huge(begin, end);
  }
  provide_pages(begin, end);
}

// What lies in one huge page.
void FreshPages::touch_one(std::uintptr_t begin, std::uintptr_t end) {
  const auto before = time_used();
  // If the kernel has no huge page, this provides the small ones in its place.
  if (!provide_pages(begin, end)) *reinterpret_cast<volatile std::byte*>(begin) = std::byte{0};
  if (!costs_.add(time_used() - before)) return;
  for (const MutableBytes memory : known_) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    refuse_huge(address, address + memory.size());
  }
}

}  // namespace weightstore::io
