#pragma once

// A regular file as a ByteSource.

#include <filesystem>
#include <memory>
#include <string>

#include "io/file_ops.h"
#include "weightstore/byte_source.h"

namespace weightstore::io {

// Opens a regular file for reading, and follows symlinks. With `map`, the first view() maps the file read-only, and the
// first private_view() maps it copy-on-write; a mapping lives as long as any of its views. Without `map` both return
// nullopt, and no access can raise SIGBUS. Throws Error(kIo) with errno and path. Refuses directories, FIFOs, sockets
// and devices with an error that says so, without blocking.
std::shared_ptr<const ByteSource> open_file(const std::filesystem::path& path, bool map, FileOps& ops);

// The same for a file that is open already. Takes ownership of `fd`, and closes it even when it throws. `name` is for
// messages. Reads do not use the position of the descriptor, which other processes may share.
std::shared_ptr<const ByteSource> adopt_file(int fd, const std::string& name, bool map, FileOps& ops);

}  // namespace weightstore::io
