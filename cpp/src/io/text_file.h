#pragma once

// Small files of text, whole, and whether they are there.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "io/atomic_file.h"
#include "io/file_ops.h"

namespace weightstore::io {

// True when the path has something, be it a link to nothing.
bool is_there(const std::filesystem::path& path);

// Throws Error(kIo), or Error(kLimit) for more than `limit` bytes.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit, FileOps& ops);

// The file appears under its name only when it is whole, as AtomicFile has it.
void write_text_file(const std::filesystem::path& path, std::string_view text, const AtomicFile::Options& options,
                     FileOps& ops);

}  // namespace weightstore::io
