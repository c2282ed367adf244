#pragma once

// Plain data on its way to Python.

#include <pybind11/pybind11.h>

#include <cstdint>

#include "weightstore/value.h"

namespace weightstore::python {

// dict, list, str, bytes, int, float, bool and None; a list that is a key of a dict becomes a tuple. Throws
// Error(kUnsupported) when two keys of a dict are the same in Python.
pybind11::object to_python(const Value& value);

// At most so much memory is taken by `value` and what to_python() makes of it.
std::uint64_t python_bytes(const Value& value);

}  // namespace weightstore::python
