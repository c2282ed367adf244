#pragma once

// Names of temporary files, and the removal of stale ones.
//
// A temporary is called `.<name of the target>.<host>-<random id>.weightstore-tmp`, where <host> is host_id() of the
// writer. Earlier releases wrote names without <host>-; such temporaries count as those of another host.

#include <string>

#include "io/file_ops.h"

namespace weightstore::io {

// A random number in hexadecimal digits, at most 16 of them.
std::string random_digits(std::size_t count = 16);

// A new name for a temporary of `target_name`, at most 255 bytes long.
std::string temporary_name(const std::string& target_name);

// Removes temporaries in `directory` whose writers are gone (io/locks/liveness.h says how that is decided). Opens every
// temporary in the directory. Never throws: stale files are an annoyance, not an error.
void remove_stale_temporaries(const std::string& directory, FileOps& ops) noexcept;

}  // namespace weightstore::io
