#pragma once

// The checksums that the ZIP archive of a .pt file has for its storages.

#include <memory>

#include "formats/checksums.h"
#include "weightstore/pytorch.h"

namespace weightstore::pytorch {

// A section is a storage. Reads the archive's directory. Throws as read_checksums() does.
std::shared_ptr<const Checksums> read_storage_checks(const ByteSource& file, const Limits& limits);

}  // namespace weightstore::pytorch
