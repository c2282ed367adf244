#pragma once

// The directory of a checkpoint before a save changes anything in it.

#include <filesystem>

#include "io/file_ops.h"
#include "weightstore/saver.h"

namespace weightstore::checkpoint {

// Creates the directory if it is missing, and returns it as an absolute path without symlinks. With `durable`, new
// directories survive a power failure. Throws Error(kIo).
std::filesystem::path create_directory(const std::filesystem::path& path, bool durable, io::FileOps& ops);

// Throws Error(kConflict) when the directory holds something that these options do not allow to be replaced.
void refuse_existing(const std::filesystem::path& directory, const SaveOptions& options, io::FileOps& ops);

// Makes the names in `directory` survive a power failure. Throws Error(kIo).
void sync_names(const std::filesystem::path& directory, io::FileOps& ops);

}  // namespace weightstore::checkpoint
