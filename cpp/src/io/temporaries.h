#pragma once

// Names of temporary files, and the removal of those that dead writers left.
//
// A temporary is called `.<name of the target>.<host>-<random id>.weightstore-tmp`, where <host> is host_id() of the
// writer. Earlier releases left <host>- out; their temporaries count as another host's.

#include <string>

#include "io/file_ops.h"

namespace weightstore::io {

// A random number in hexadecimal digits, at most 16 of them.
std::string random_digits(std::size_t count = 16);

// A new name for a temporary of `target_name`, at most 255 bytes long.
std::string temporary_name(const std::string& target_name);

// Removes temporaries in `directory` whose writers are gone, as io/liveness.h tells. Opens every temporary that is
// there. Never throws: leftovers are an annoyance, not an error.
void remove_stale_temporaries(const std::string& directory, FileOps& ops) noexcept;

}  // namespace weightstore::io
