#pragma once

// Checks of the arguments that Saver, Loader and CheckpointReader have in common.

#include <cstdint>
#include <filesystem>
#include <string>

#include "weightstore/error.h"

namespace weightstore::checkpoint {

// The number of threads that a caller gives to a Saver or a Loader. Throws Error(kInvalidArgument) unless it is 1 to
// 1024.
inline unsigned checked_parallel(std::int64_t parallel) {
  constexpr std::int64_t kMost = 1024;
  if (parallel >= 1 && parallel <= kMost) return static_cast<unsigned>(parallel);
  throw Error(ErrorCode::kInvalidArgument,
              "parallel is " + std::to_string(parallel) + "; it must be 1 to " + std::to_string(kMost));
}

// Throws Error(kInvalidArgument) for a path that contains a NUL: the operating system would silently cut it there.
inline void check_path(const std::filesystem::path& path) {
  if (path.native().find('\0') == std::string::npos) return;
  throw Error(ErrorCode::kInvalidArgument, "the path '" + printable(path.native()) + "' has a NUL in it");
}

}  // namespace weightstore::checkpoint
