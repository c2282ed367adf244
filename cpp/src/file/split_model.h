#pragma once

// A model that is split over several files, each of which says which part it is (FilePart).

#include <filesystem>

#include "file/shard_set.h"

namespace weightstore {

// Opens all parts of the model of which `path` is part `part.number`. The file is called
// `<name>-00001-of-00003<ending>`, and so are the others. Their metadata are those of the first file. Throws
// Error(kCorrupt or kUnsupported) when the name of a file does not say what its content says, or a part is missing.
ShardSet open_split_model(const std::filesystem::path& path, Format format, const FilePart& part,
                          const ReadOptions& options, io::FileOps& ops);

// The error for a part that was not opened by its path, so that the other parts cannot be found.
Error part_without_path(const FilePart& part);

}  // namespace weightstore
