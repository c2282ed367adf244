#pragma once

// The steps that writing one file and writing a set of shards share.

#include <filesystem>

#include "io/file_ops.h"
#include "io/output_file.h"
#include "weightstore/layout.h"
#include "weightstore/writer.h"

namespace weightstore {

// Throws when the format cannot hold `contents`.
void check_contents(const Writer& contents, Format format, const WriteOptions& options);

// The format's layout of `contents` and of their checksums. Where `options` asks for checksums, which are known only
// when the data has been written, the header has zeros in their place. Throws as check_contents() does.
Layout plan_file(const Writer& contents, Format format, const WriteOptions& options);

// Streams `contents` through `file`, as plan_file() planned them with the same arguments, and puts the checksums that
// `options` asks for into the header. The caller commits.
void write_open_file(const io::OutputFile& file, const Writer& contents, const Layout& layout, Format format,
                     const WriteOptions& options, io::FileOps& ops);

// Writer::write_file() with a given file system, for callers on threads of their own.
void write_file(const Writer& contents, const std::filesystem::path& path, Format format, const WriteOptions& options,
                io::FileOps& ops);

}  // namespace weightstore
