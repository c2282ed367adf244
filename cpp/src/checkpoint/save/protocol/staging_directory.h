#pragma once

// Where a save writes its files: into the directory of the checkpoint, or into a staging directory beside it. A save
// that replaces a checkpoint of the recis layout, whose file names are fixed, stages the new checkpoint and then
// exchanges the two directories.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/file_ops.h"
#include "weightstore/saver.h"

namespace weightstore::checkpoint {

struct SaveDirectories {
  std::filesystem::path target;  // the directory of the checkpoint
  std::filesystem::path work;    // where files are written: the target or its staging directory

  bool is_staged() const { return work != target; }
};
SaveDirectories directories_of(const std::filesystem::path& target, const SaveOptions& options,
                               std::string_view attempt);

// ".<name of the target>~<attempt>.weightstore-save" beside the target. A name that is too long for the file system is
// shortened, and a hash of the whole name is added to it.
std::filesystem::path staging_directory(const std::filesystem::path& target, std::string_view attempt);

// The target, and the staging directories beside it: wherever a save into `target` may have files. Throws Error(kIo)
// when the parent of the target cannot be listed; a parent that this process may not list counts as empty.
std::vector<std::filesystem::path> directories_of_all_saves(const std::filesystem::path& target, io::FileOps& ops);

// Creates the staging directory, as private as the target, unless the save has none. It may exist already. Throws
// Error(kIo).
void create_staging_directory(const SaveDirectories& directories, io::FileOps& ops);

}  // namespace weightstore::checkpoint
