#pragma once

// How many files the process may open.

#include <cstddef>

namespace weightstore::io {

// Raises the soft limit of open files to the hard limit. False when the soft limit was that high already.
bool raise_descriptor_limit() noexcept;

// Does the same if `files` is more than half of the soft limit, because the rest of the process opens files, too.
void make_room_for(std::size_t files) noexcept;

}  // namespace weightstore::io
