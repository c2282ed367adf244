#pragma once

#include <cstdint>

namespace weightstore::io {

// A number that differs between a process and the children that it makes with fork(2). Costs a load from memory, where
// getpid(2) is a call of the system.
std::uint32_t fork_count();

}  // namespace weightstore::io
