#pragma once

// Descriptors of files that this process locks. A child that fork(2) makes closes its copies of them.
//
// A flock(2) lock belongs to the open file, and a forked child shares the open files of its parent. A child that
// outlives its parent would therefore keep the parent's locks, and others would take the parent for alive. close(2) in
// the child leaves the lock with the parent.
//
// No fork can happen between the opening of a file and the moment when the child would know of the descriptor: fork(2)
// waits until no call below is running. In the child a descriptor of the parent is closed, and its number may belong to
// another file: whoever owns one must check that the process is still the same before using it.

#include <sys/types.h>

#include <string>

#include "io/file_ops.h"

namespace weightstore::io {

// As open(2), repeated while a signal interrupts it. Thread-safe, as are the other two.
int open_fork_closed(const std::string& path, int flags, mode_t mode, FileOps& ops);

// As FileOps::dup(): another descriptor of the same open file, which a child closes as well.
int duplicate_fork_closed(int fd, FileOps& ops);

// As close(2), for the descriptors of these functions.
int close_fork_closed(int fd, FileOps& ops);

}  // namespace weightstore::io
