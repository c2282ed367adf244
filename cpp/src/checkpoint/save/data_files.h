#pragma once

// The data files of a save: written, described for the shard's record, and looked at again by shard 0.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "checkpoint/block_plan.h"
#include "checkpoint/shard_record.h"

namespace weightstore::checkpoint {

// Writes one planned file, which must not exist, and reads its header back. `moved(bytes, name)` is called with the
// bytes written since the last call, on the calling thread; it throws to stop.
RecordedFile write_data_file(const std::filesystem::path& path, const PlannedFile& file, const SaveOptions& options,
                             const std::function<void(std::uint64_t, std::string_view)>& moved, io::FileOps& ops);

// Throws Error unless the file has the size of the record and the header that was written, in front of `data_bytes`.
void check_data_file(const std::filesystem::path& path, const RecordedFile& file, std::uint64_t data_bytes,
                     io::FileOps& ops);

}  // namespace weightstore::checkpoint
