#pragma once

// A regular file as a ByteSource.

#include <filesystem>
#include <memory>
#include <string>

#include "io/file_ops.h"
#include "weightstore/byte_source.h"

namespace weightstore::io {

// Opens a regular file for reading; its symlinks are followed. With `map`, view() and private_view() map the file when
// first asked (read-only and copy-on-write respectively), and the mapping lives as long as any view; without it they
// return nullopt and no access can raise SIGBUS. Throws Error(kIo) with errno and path; a directory, FIFO, socket or
// device is refused by name, without blocking.
std::shared_ptr<const ByteSource> open_file(const std::filesystem::path& path, bool map, FileOps& ops);

// The same for a file that is open: takes `fd` over, and closes it also when it throws. `name` is for messages. Reads
// do not use the position of the descriptor, which other processes may share.
std::shared_ptr<const ByteSource> adopt_file(int fd, const std::string& name, bool map, FileOps& ops);

}  // namespace weightstore::io
