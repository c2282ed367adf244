#pragma once

// The steps that writing one file and writing a set of shards share.

#include <cstdint>
#include <span>

#include "io/file_ops.h"
#include "io/output_file.h"
#include "weightstore/layout.h"
#include "weightstore/writer.h"

namespace weightstore {

// The format's layout of `contents`. Throws when the format cannot hold them.
Layout plan_file(const Writer& contents, Format format, const WriteOptions& options);

// Plans `contents`, streams them through `file` and puts the checksums that `options` asks for into the header. The
// caller commits.
void write_open_file(const io::OutputFile& file, const Writer& contents, Format format, const WriteOptions& options,
                     io::FileOps& ops);

}  // namespace weightstore
