#pragma once

// Names that a checkpoint has a place for, and paths that it can lie at.

#include <filesystem>
#include <string_view>

namespace weightstore::table {

// Throw Error(kInvalidArgument) for names under which nothing could be saved. `what` is "a table" or "a child".
void check_table_name(const char* what, std::string_view name);
void check_slot_name(std::string_view name);

// Throws Error(kInvalidArgument) for a path with a NUL, at which the operating system would silently cut it.
void check_path(const std::filesystem::path& path);

}  // namespace weightstore::table
