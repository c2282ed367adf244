#pragma once

// The Burnpack format: metadata to table, and contents to metadata. docs/formats.md describes the bytes.

#include <memory>

#include "weightstore/file_contents.h"
#include "weightstore/layout.h"
#include "weightstore/read_options.h"
#include "weightstore/tensor.h"

namespace weightstore::burnpack {

// Parses and checks the metadata of a file written by Burn 0.19 (packed data), 0.20, or later. Accepts what Burn
// accepts except names that come twice, lengths that differ from what shape and data type need, and tensors that share
// bytes or lie outside the file. Throws kCorrupt, kLimit, or kUnsupported for what a newer Burn may have written.
TensorTable read_table(std::shared_ptr<const ByteSource> source, const Limits& limits = {});

// Where everything goes, as Burn `compat` writes it. Throws kInvalidArgument for contents that the format cannot hold
// and kLimit for what Burn could not read back.
Layout plan(const FileContents& contents, BurnCompat compat);

}  // namespace weightstore::burnpack
