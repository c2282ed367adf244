#pragma once

// What is at a path, and directories: FileOps with errors instead of errno.
//
// Every function throws Error(kIo) with errno and path when the system cannot answer. "Nothing is there" is an answer
// (ENOENT, ENOTDIR) and not an error, except where a comment says so: a disk that fails must not look like an empty
// one.

#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/file_ops.h"

namespace weightstore::io {

// The status of what the path leads to, through symlinks; nullopt when nothing is there.
std::optional<struct stat> find_file(const std::filesystem::path& path, FileOps& ops);

// The same without following a symlink: the status of the link itself.
std::optional<struct stat> find_name(const std::filesystem::path& path, FileOps& ops);

// True when the name exists, even as a broken symlink.
bool is_there(const std::filesystem::path& path, FileOps& ops);

// True when the path leads to a directory.
bool is_directory(const std::filesystem::path& path, FileOps& ops);

// The names in a directory, without "." and "..", in no order. A directory that is missing is an error.
std::vector<std::string> list_directory(const std::filesystem::path& directory, FileOps& ops);

// Creates the directory and those above it that are missing, with the mode that the umask gives. Returns the
// directories that were missing, the outermost first. Throws Error(kIo) also when the path leads to something that is
// no directory.
std::vector<std::filesystem::path> create_directories(const std::filesystem::path& directory, FileOps& ops);

// The absolute path without symlinks, "." or "..". A missing file is an error.
std::filesystem::path canonical_path(const std::filesystem::path& path, FileOps& ops);

// Like canonical_path(), but the file need not exist: it resolves the part of the path that exists, and appends the
// rest unchanged. All paths to one place give the same result.
std::filesystem::path weakly_canonical_path(const std::filesystem::path& path, FileOps& ops);

}  // namespace weightstore::io
