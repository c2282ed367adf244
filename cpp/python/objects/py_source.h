#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "weightstore/byte_source.h"

namespace weightstore::python {

// A binary Python file object (seek and readinto) as a source. Its position is moved, and it is not closed. GIL held.
//
// A file of open(path, "rb") is read through a descriptor of its own: by several threads at once, without the GIL, also
// in a forked process and after the object was closed. Of any other object the reads take turns under one lock, and in
// a forked process they are refused with Error(kInvalidArgument), except for a BytesIO.
std::shared_ptr<const ByteSource> file_object_source(pybind11::object file);

// A callable as a source of `size` bytes: read(offset, size) returns a bytes-like object. One that is too short is an
// OffloadEof. Several threads may call it at once. GIL held.
std::shared_ptr<const ByteSource> callable_source(pybind11::object read, std::uint64_t size);

// Anything with a contiguous buffer as a source whose views point into it. GIL held.
std::shared_ptr<const ByteSource> buffer_source(pybind11::handle object);

}  // namespace weightstore::python
