#pragma once

// From one file to another, without the model in memory.

#include <cstddef>
#include <filesystem>

#include "weightstore/reader.h"
#include "weightstore/writer.h"

namespace weightstore {

// Everything that a file holds, ready to be written in another format.
struct Conversion {
  Writer contents;                            // reads the source as it is written; keeps its files open
  BurnCompat burn_compat = BurnCompat::k020;  // the dialect of a Burnpack source
  std::size_t dropped_param_ids = 0;          // SafeTensors cannot hold them
};

// Tensors in the order of their data, ids, metadata, scalars, and the checksums that the source records.
// docs/formats.md, "Conversion", says what becomes of metadata that describe files or formats. Types that only differ
// in name (Flex32 and F32, one-byte booleans) are renamed for SafeTensors. When `source` was opened to be verified,
// writing a damaged tensor throws Error(kCorrupt). Throws Error(kInvalidArgument) for scalars and types that `target`
// cannot hold.
Conversion plan_conversion(const Reader& source, Format target);

// Writes what `source` holds to `target`, in the format of its ending. `options` as for Writer::write_file(), except
// that the order of tensors and the dialect are the source's. A source that is given by its path is verified.
void convert_file(const std::filesystem::path& source, const std::filesystem::path& target,
                  const WriteOptions& options = {});
void convert_file(const Reader& source, const std::filesystem::path& target, const WriteOptions& options = {});

}  // namespace weightstore
