#pragma once

// Which files of a directory belong to the checkpoint in it.

#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "io/file_ops.h"

namespace weightstore::checkpoint {

// The names of the indexes in `directory`, of either layout, and of the files that they name; empty when there is no
// checkpoint. nullopt when an index cannot be read: then any file may belong to the checkpoint.
std::optional<std::set<std::string>> checkpoint_files(const std::filesystem::path& directory, io::FileOps& ops);

}  // namespace weightstore::checkpoint
