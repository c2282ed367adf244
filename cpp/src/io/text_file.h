#pragma once

// Small text files, read and written as a whole.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "io/atomic_file.h"
#include "io/file_ops.h"

namespace weightstore::io {

// Throws Error(kIo), or Error(kLimit) when the file has more than `limit` bytes.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit, FileOps& ops);

// Writes a file that appears under its name only when it is complete (io/atomic_file.h).
void write_text_file(const std::filesystem::path& path, std::string_view text, const AtomicFile::Options& options,
                     FileOps& ops);

}  // namespace weightstore::io
