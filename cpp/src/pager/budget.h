#pragma once

#include <cstdint>
#include <filesystem>

namespace weightstore::pager {

// Bytes that this process may still take: MemAvailable, and for each control group it is in (version 1 and 2, with the
// groups above it) the limit less what is used, page cache that can be dropped not counted. kUnlimited when nothing
// says how much. `root` is "/" but for tests.
std::uint64_t available_memory(const std::filesystem::path& root = "/");

// Less a reserve of a tenth, 256 MiB at least and a half at most.
std::uint64_t budget_from(std::uint64_t available);

}  // namespace weightstore::pager
