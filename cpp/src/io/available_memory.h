#pragma once

// How much memory this process may still take. The kernel grants more memory than there is, and ends a process that
// uses it; so whoever is about to fill a lot of memory asks here first.

#include <cstdint>
#include <filesystem>
#include <limits>

namespace weightstore::io {

inline constexpr std::uint64_t kUnknownMemory = std::numeric_limits<std::uint64_t>::max();

enum class Swap : std::uint8_t {
  kCounts,   // what can be allocated at all
  kIgnored,  // what can be used again and again without waiting for a disk
};

// Bytes that this process can use before the kernel has to end somebody: what the machine has available (MemAvailable),
// but not more than each control group of the process leaves (version 1 and 2, with the groups above it). All page
// cache that the kernel can drop counts as available, as do reclaimable slab and the cache of ZFS. kUnknownMemory when
// the system does not say. `root` is "/" except in tests.
std::uint64_t available_memory(Swap swap, const std::filesystem::path& root = "/");

// Throws Error(kMemory) when `bytes` of new memory, about to be filled, exceed what is available with swap. Cheap
// enough for every tensor: small requests are added up, and the system is asked about once in 64 MiB. Memory that is
// granted is not set aside: two threads that ask at the same time may be told the same. Thread-safe.
void require_memory(std::uint64_t bytes);

}  // namespace weightstore::io
