#pragma once

// What part of a file the page cache holds.

#include <cstdint>
#include <optional>

namespace weightstore::io {

// Pages of [offset, offset + length) that are in memory; nullopt where the system does not tell.
std::optional<std::uint64_t> cached_pages_by_cachestat(int fd, std::uint64_t offset, std::uint64_t length);
std::optional<std::uint64_t> cached_pages_by_mincore(int fd, std::uint64_t offset, std::uint64_t length);

// True when reading the range through the page cache is the better way: most of it is there, or nobody can tell.
bool mostly_cached(int fd, std::uint64_t offset, std::uint64_t length);

}  // namespace weightstore::io
