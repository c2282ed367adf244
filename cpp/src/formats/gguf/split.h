#pragma once

// Models that are split over several files: `-00001-of-00003.gguf`.

#include <optional>

#include "formats/format_spec.h"
#include "weightstore/typed_metadata.h"

namespace weightstore::gguf {

// Which part of a split model a file with these metadata is; nullopt for a whole model. Throws Error(kCorrupt) when the
// entries contradict each other.
std::optional<FilePart> split_part(const TypedMetadata& metadata);

// True for the entries that say so, which are about a file and not about the model.
bool is_split_key(std::string_view key);

}  // namespace weightstore::gguf
