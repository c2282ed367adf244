#include "checkpoint/save/protocol/checkpoint_directory.h"

#include <cerrno>
#include <string>

#include "checkpoint/checkpoint_index.h"
#include "checkpoint/layouts.h"
#include "io/atomic_file.h"
#include "io/checked_io.h"
#include "io/paths.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

bool is_current_directory(const std::filesystem::path& directory, io::FileOps& ops) {
  const auto here = io::find_file(".", ops);
  const auto there = io::find_file(directory, ops);
  return here && there && here->st_dev == there->st_dev && here->st_ino == there->st_ino;
}

}  // namespace

std::filesystem::path create_directory(const std::filesystem::path& path, bool durable, io::FileOps& ops) {
  const auto created = io::create_directories(path, ops);
  for (const std::filesystem::path& directory : created) {
    const std::filesystem::path parent = directory.parent_path();
    if (durable) sync_names(parent.empty() ? "." : parent, ops);
  }
  return io::canonical_path(path, ops);
}

void refuse_existing(const std::filesystem::path& directory, const SaveOptions& options, io::FileOps& ops) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kConflict, what).in_file(directory.native()).equivalent_errno(EEXIST);
  };
  const bool has_recis = io::is_there(directory / kRecisIndex, ops);
  const bool has_plain = io::is_there(directory / kPlainIndex, ops);
  if (options.layout == CheckpointLayout::kPlain) {
    if (has_recis) refuse("holds a checkpoint of the recis layout; save to another directory, or remove it first");
    if (has_plain && !options.overwrite && !is_own_index(directory / kPlainIndex, ops)) {
      refuse("holds a set of shards that Saver did not write; save to another directory, or allow overwriting");
    }
    return;
  }
  if (!options.overwrite && (has_recis || has_plain)) {
    refuse("holds a checkpoint; save to another directory, or allow overwriting");
  }
  if (options.overwrite && is_current_directory(directory, ops)) {
    refuse("is the current directory, which cannot be exchanged for another; save to a directory of its own");
  }
}

void sync_names(const std::filesystem::path& directory, io::FileOps& ops) {
  if (!io::sync_directory(directory.native(), ops)) {
    throw io::io_error(errno, "cannot sync the directory", directory.native());
  }
}

}  // namespace weightstore::checkpoint
