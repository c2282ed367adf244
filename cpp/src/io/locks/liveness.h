#pragma once

// Whether the writer of a file is still alive.
//
// A writer holds flock(2) on its file for as long as it lives. On some file systems that lock is visible only on the
// writer's own host (Lustre with -o localflock, NFS with local_lock=flock), so a free lock proves nothing about the
// writers of other hosts. A file that may be taken for abandoned therefore also says which host made it, in its name or
// in its contents:
//
//  - Another process holds the lock: the writer is alive, whatever else is known.
//  - The lock is free and this host made the file: the writer is gone.
//  - Any other case (another host, an unknown host, a file system without locks): the writer counts as gone when nobody
//    has written to the file for kAbandonedAfter.

#include <chrono>
#include <string>
#include <string_view>

#include "io/file_ops.h"

namespace weightstore::io {

inline constexpr std::size_t kHostDigits = 8;
inline constexpr std::chrono::hours kAbandonedAfter{24};

// Names the running kernel, in kHostDigits hexadecimal digits: a hash of its boot id, or of the host name where there
// is no boot id. Containers on one machine have the same id, and see each other's locks. A machine that restarts gets a
// new id. Thread-safe.
const std::string& host_id();

// True when the writer of the open file `fd`, which host `host` made, is gone. The call may leave a shared lock on
// `fd`: until the caller closes `fd`, no writer can lock the file. Never throws.
bool writer_is_gone(int fd, std::string_view host, FileOps& ops) noexcept;

}  // namespace weightstore::io
