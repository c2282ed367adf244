#pragma once

// Where a save through symlinks leads.

#include <filesystem>

namespace weightstore::io {

// Where a name that may be a chain of symlinks leads; the file at the end need not exist. Only the last component is
// resolved: the system resolves links among the directories.
//
// In a directory that everybody may write to and that has the sticky bit, such as /tmp, a link is followed only when it
// belongs to the caller or to the owner of the directory: otherwise another user could choose which of the caller's
// files is replaced. This is the rule of Linux' fs.protected_symlinks, which does not cover readlink(2). Throws
// Error(kIo): EACCES for such a link, ELOOP for a circle.
std::filesystem::path follow_links(std::filesystem::path path);

}  // namespace weightstore::io
