#pragma once

// Which part of a file is in the page cache.

#include <cstdint>
#include <optional>

#include "io/file_ops.h"

namespace weightstore::io {

// How many pages of [offset, offset + length) are in memory; nullopt where the system does not say.
std::optional<std::uint64_t> cached_pages_by_cachestat(int fd, std::uint64_t offset, std::uint64_t length,
                                                       FileOps& ops);
std::optional<std::uint64_t> cached_pages_by_mincore(int fd, std::uint64_t offset, std::uint64_t length, FileOps& ops);

// True when it is better to read the range through the page cache: most of it is there, or the system does not say.
bool mostly_cached(int fd, std::uint64_t offset, std::uint64_t length, FileOps& ops);

}  // namespace weightstore::io
