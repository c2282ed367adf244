#pragma once

// Files of numpy.save() and numpy.savez(). docs/formats.md, "NumPy", says what is read.

#include <memory>
#include <string_view>

#include "formats/format_spec.h"

namespace weightstore::numpy {

// True when a file begins as an .npy array does.
bool is_array(std::string_view head);

// The arrays of an .npz archive under the names of its members, without ".npy", or the one array of an .npy file under
// the name "arr_0", which numpy.savez() gives to an array without a name. An array in row-major order and of this
// machine's byte order that is not compressed is a range of `source`; every other one has a source of its own. Nothing
// is unpickled. Takes at most 24 times the size of the file and 64 KiB of memory. Throws kCorrupt, kLimit or
// kUnsupported, with the name of the array.
OpenedFile open(std::shared_ptr<const ByteSource> source, const ReadOptions& options);

}  // namespace weightstore::numpy
