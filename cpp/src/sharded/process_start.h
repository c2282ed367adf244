#pragma once

// Wall-clock times, by which shards on several machines tell the runs of a job apart.

#include <cstdint>

namespace weightstore::sharded {

// Milliseconds since 1970.
std::uint64_t now_ms();

// When the process began that loaded this library; the same in children that it forks then. Not when the library was loaded:
// of two processes that are started together one may be through with its save before the other has imported anything.
std::uint64_t process_start_ms();

}  // namespace weightstore::sharded
