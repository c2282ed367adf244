#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>

#include "weightstore/byte_producer.h"

namespace weightstore::python {

// Bytes that a Python callable makes when the writer reaches them: it returns one bytes-like object or an iterable of
// them, `size` bytes in all, and is called anew for each write. At most one of its chunks is held at a time. GIL held.
std::shared_ptr<ByteProducer> callable_bytes(std::uint64_t size, pybind11::object produce);

}  // namespace weightstore::python
