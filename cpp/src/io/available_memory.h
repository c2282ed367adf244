#pragma once

// How much memory this process can still use. The kernel grants more memory than exists, and kills a process that uses
// it. So code that is about to fill a lot of memory asks here first.

#include <cstdint>
#include <filesystem>
#include <limits>

namespace weightstore::io {

inline constexpr std::uint64_t kUnknownMemory = std::numeric_limits<std::uint64_t>::max();

enum class Swap : std::uint8_t {
  kCounts,   // free swap counts: how much can be allocated at all
  kIgnored,  // it does not: how much can be used without waiting for a disk
};

// How many bytes this process can use before the kernel has to kill a process: the machine's MemAvailable, but not more
// than any control group of the process leaves (versions 1 and 2, and all parent groups). Page cache that the kernel
// can drop, reclaimable slab and the cache of ZFS count as available. kUnknownMemory when the system does not say.
// `root` is "/" except in tests.
std::uint64_t available_memory(Swap swap, const std::filesystem::path& root = "/");

// Throws Error(kMemory) when the caller is about to fill `bytes` of new memory and less than that is available,
// counting swap. Cheap enough to call for every tensor: it adds small requests up, and asks the system about once per
// 64 MiB. It reserves nothing: two threads that ask at the same time may both be told that there is enough.
// Thread-safe.
void require_memory(std::uint64_t bytes);

}  // namespace weightstore::io
