#pragma once

// Converts a file to another format. The tensors are streamed, so a model may be larger than the memory.

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weightstore/reader.h"
#include "weightstore/writer.h"

namespace weightstore {

// The contents of a file, prepared for writing in another format.
struct Conversion {
  Writer contents;                       // reads the source while it is written; keeps the source's files open
  BurnRelease burn = kNewestStableBurn;  // TensorTable::burn_release() of a Burnpack source, if it is known
  std::size_t dropped_param_ids = 0;     // parameter ids that the target format cannot hold
  // Keys of typed metadata that the target format cannot hold as text: arrays, and text that is not UTF-8.
  std::vector<std::string> dropped_metadata;
  // Matrices of floats that stay as they are, because their rows are not whole blocks of the type that was asked for.
  std::vector<std::string> not_quantized;
};

// Plans a conversion of all tensors in the order of their data, with their parameter ids, metadata, scalars and
// recorded checksums. The section "Conversion" of docs/formats.md says what happens to metadata that describes files or
// formats. For SafeTensors and GGUF, types with the same bytes under another name (Flex32 as F32) are renamed.
//
// If `dtype` is F32, F64, F16 or BF16, floating-point tensors that can be cast to that type (can_cast() in kernels.h)
// are, and quantized tensors are written as numbers of it (transform.h). If it is Q8_0 or Q4_0, for a GGUF file, floats
// in tensors of two or more dimensions are quantized, and tensors that are quantized otherwise are dequantized first.
// Tensors that change have no checksum of the source.
//
// Throws Error(kInvalidArgument) for types and scalars that `target` cannot hold, Error(kUnsupported) for a quantized
// type that is only carried, and Error(kLimit) as Reader::check_expansion() does. If `source` was opened with
// verification, writing a damaged tensor throws Error(kCorrupt).
Conversion plan_conversion(const Reader& source, Format target, std::optional<DType> dtype = std::nullopt);

// For callers that plan the tensors themselves: sets the metadata and the scalars that plan_conversion() would set.
// Returns the keys of the metadata that `target` cannot hold. Throws as plan_conversion() does about scalars.
std::vector<std::string> describe_as(const Reader& source, Format target, FileContents& contents);

// Converts `source` to the format that the ending of `target` names, and writes it as Writer::write_file() does.
// Tensors keep the order of the source: options.order is ignored. If options.burn is not set, a Burnpack file is
// written for Conversion::burn. A source that is given as a path is opened with Verify::kLazy.
void convert_file(const std::filesystem::path& source, const std::filesystem::path& target,
                  const WriteOptions& options = {});
void convert_file(const Reader& source, const std::filesystem::path& target, const WriteOptions& options = {});

// Changes the metadata of a SafeTensors or Burnpack file: adds or replaces the entries of `changed`, and removes those
// of `removed`. Writes a new file that replaces the old one when it is complete, as Writer::write_file() does. The
// bytes of the tensors are copied by the system (copy_file_range(2)), which shares them between the files where the
// file system can; the header of a SafeTensors file is padded with up to 4095 spaces for that. The bytes are not looked
// at: checksums stay as they are. Throws Error(kInvalidArgument) for a format that is not written, for a set of shards,
// for the entry that holds the checksums, and for an entry of `removed` that is not there.
void set_file_metadata(const std::filesystem::path& path, const TextMap& changed, std::span<const std::string> removed,
                       const WriteOptions& options = {});

}  // namespace weightstore
