#pragma once

// Memory for bulk data. Touching fresh 4 KiB pages costs more than copying what goes into them; 2 MiB pages do not.

#include <cstddef>

#include "weightstore/byte_source.h"

namespace weightstore::io {

// Zeroed memory, aligned to 2 MiB and backed by huge pages where the kernel has them when `size` is at least that, to
// 4096 bytes otherwise. Freed with the last owner. Throws std::bad_alloc.
SharedMutableBytes allocate_bulk(std::size_t size);

}  // namespace weightstore::io
