#pragma once

// Owner, permissions and attributes of a file that replaces another one.

#include <sys/stat.h>

#include <string>

#include "io/file_ops.h"

namespace weightstore::io {

// Gives the new file `fd` the owner, group, mode, ACL, SELinux label and user extended attributes of the regular file
// `replaced`, whose lstat(2) is `status`. It is no error when owner, group or ACL cannot be kept: only root may change
// them freely. In that case the group of the new file gets only the rights that everybody has, so that the new file
// gives nobody more rights than the old one. Throws Error(kIo) with the path `target` when the mode cannot be set.
void take_attributes(int fd, const std::string& replaced, const struct stat& status, const std::string& target,
                     FileOps& ops);

}  // namespace weightstore::io
