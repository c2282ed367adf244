#pragma once

#include <cstddef>

namespace weightstore::io {

// Raises the soft limit of open files to the hard one. False when it was there already.
bool raise_descriptor_limit() noexcept;

// The same when `files` are more than half of what the soft limit allows: the rest of the process opens files too.
void make_room_for(std::size_t files) noexcept;

}  // namespace weightstore::io
