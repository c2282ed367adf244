#pragma once

// Who may do what with a file that replaces another.

#include <sys/stat.h>

#include <string>

#include "io/file_ops.h"

namespace weightstore::io {

// Gives the new file `fd` the owner, group, mode, ACL, SELinux label and user extended attributes of the regular file
// `replaced`, whose lstat(2) is `status`. Only root may give files away, so the owner, the group or the ACL may not be
// kept; that is no error. Nobody who could not read or write the old file by its group or ACL can do so with the new
// one: the group then gets the rights of all others. Throws Error(kIo) with the path `target` when the mode cannot be
// set.
void take_attributes(int fd, const std::string& replaced, const struct stat& status, const std::string& target,
                     FileOps& ops);

}  // namespace weightstore::io
