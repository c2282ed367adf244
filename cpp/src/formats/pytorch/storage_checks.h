#pragma once

// The checksums that the ZIP archive of a .pt file has for its storages.

#include <memory>

#include "formats/checksums.h"
#include "weightstore/pytorch.h"

namespace weightstore::pytorch {

// True when the table has arrays of numpy, whose elements are in the pickle and not in a storage.
bool has_arrays(const TensorTable& table);

// A section is a storage or, with `with_pickle`, the pickle: the section of all arrays of numpy. Reads the archive's
// directory. Throws as read_checksums() does.
std::shared_ptr<const Checksums> read_storage_checks(const ByteSource& file, const Limits& limits, bool with_pickle);

}  // namespace weightstore::pytorch
