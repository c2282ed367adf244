#pragma once

// The data files of a save: a shard writes them and describes them in its record, and shard 0 checks them.

#include <cstdint>
#include <filesystem>
#include <string>

#include "checkpoint/block_plan.h"
#include "checkpoint/shard_record.h"
#include "io/file_ops.h"
#include "weightstore/progress.h"

namespace weightstore::checkpoint {

// Writes one planned file, which must not exist, and reads its header back. `progress` hears of the bytes of the file.
RecordedFile write_data_file(const std::filesystem::path& path, const PlannedFile& file, const SaveOptions& options,
                             const Progress& progress, io::FileOps& ops);

// Throws Error unless the file has the size and the header that the record says. `data_bytes` is the size without the
// header.
void check_data_file(const std::filesystem::path& path, const RecordedFile& file, std::uint64_t data_bytes,
                     io::FileOps& ops);

}  // namespace weightstore::checkpoint
