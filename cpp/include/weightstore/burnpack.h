#pragma once

// The Burnpack format: reads the metadata of a file into a table, and plans the metadata of a new file. docs/formats.md
// describes the bytes.

#include <memory>

#include "weightstore/burn_release.h"
#include "weightstore/file_contents.h"
#include "weightstore/layout.h"
#include "weightstore/read_options.h"
#include "weightstore/tensor.h"

namespace weightstore::burnpack {

// Parses and checks the metadata of a file that Burn 0.19 (whose data is packed), 0.20 or later wrote. Accepts what
// Burn accepts, except duplicate names, tensors whose length does not fit their shape and data type, tensors that share
// bytes, and tensors outside the file. Throws Error(kCorrupt or kLimit), and Error(kUnsupported) for content that a
// newer Burn may have written.
TensorTable read_table(std::shared_ptr<const ByteSource> source, const Limits& limits = {});

// Plans a file with these contents, as the Burn release `release` writes it. Throws Error(kInvalidArgument or
// kUnsupported) for contents that the format or the release cannot hold, and for quantized tensors from which the
// release would read other numbers, and Error(kLimit) when the file would exceed a limit of
// Burn's reader.
Layout plan(const FileContents& contents, BurnRelease release);

}  // namespace weightstore::burnpack
