#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "weightstore/byte_source.h"

namespace weightstore::python {

// A binary Python file object (seek and readinto) as a source. Its position is moved; reads take turns under one lock.
// The object stays open, and is not closed. GIL held.
std::shared_ptr<const ByteSource> file_object_source(pybind11::object file);

// Anything with a contiguous buffer as a source whose views point into it. GIL held.
std::shared_ptr<const ByteSource> buffer_source(pybind11::handle object);

}  // namespace weightstore::python
