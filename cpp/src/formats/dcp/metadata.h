#pragma once

// The file `.metadata` of torch.distributed.checkpoint's FileSystemWriter. It is a pickle: this reader treats it as
// data, imports nothing and calls nothing.

#include "weightstore/byte_source.h"
#include "weightstore/read_options.h"
#include "weightstore/value.h"

namespace weightstore::dcp {

// What the file says, as plain data:
//   {"tensors": {name: [dtype, shape, [[begin, size], ...]]},      a pair for each chunk
//    "objects": [name, ...],                                        values that are no tensors
//    "places": [[name, begin or null, file, offset, length], ...],  of each chunk and object
//    "paths": {name: [key, ...]}}                                   where a name is in the nested state dict
// Names of types are those of files, such as "F32". Every number is checked to be a number of elements or bytes, and
// every file to be a plain name; whether chunks fit their tensor, and records their file, the caller checks. Throws
// Error: kCorrupt; kUnsupported for records that an extension transformed, for types that no file of ours holds, and
// for a file that names something that acts on the machine; kLimit as pytorch::read_table() does.
Value read_metadata(const ByteSource& source, const Limits& limits = {});

}  // namespace weightstore::dcp
