#pragma once

// Files that earlier saves left behind, and which of them may be removed. All of these functions ignore files that
// cannot be removed and directories that cannot be listed: stale files take room and do no other harm.

#include <filesystem>
#include <string_view>

#include "io/file_ops.h"

namespace weightstore::checkpoint {

// Removes the files of dead saves in the directory of a checkpoint, and their staging directories beside it. Keeps the
// files of `attempt` and the files of the checkpoint. The caller holds the lock of the directory. Throws Error(kIo)
// when the system cannot tell whether there is a checkpoint, or which staging directories there are.
void remove_stale_files(const std::filesystem::path& target, std::string_view attempt, io::FileOps& ops);

// Removes the files of `attempt` in `directory`, except for those that the checkpoint there consists of.
void remove_attempt_files(const std::filesystem::path& directory, std::string_view attempt, io::FileOps& ops) noexcept;

// Removes a staging directory, or a directory that was exchanged for one. Files of checkpoints and saves are removed.
// Files that weightstore did not write are moved to `successor`.
void retire_directory(const std::filesystem::path& directory, const std::filesystem::path& successor, io::FileOps& ops);

}  // namespace weightstore::checkpoint
