#pragma once

// Which file a save replaces when its target is a symlink.

#include <filesystem>

#include "io/file_ops.h"

namespace weightstore::io {

// The path at the end of a chain of symlinks. The file there need not exist. Only the last component of the path is
// resolved; the kernel resolves links among the directories.
//
// In a world-writable directory with the sticky bit, such as /tmp, a link is followed only if it belongs to the caller
// or to the owner of the directory. Otherwise another user could choose which of the caller's files is replaced. This
// is the rule of Linux' fs.protected_symlinks, which does not cover readlink(2). Throws Error(kIo): EACCES for such a
// link, ELOOP for a cycle.
std::filesystem::path follow_links(std::filesystem::path path, FileOps& ops);

}  // namespace weightstore::io
