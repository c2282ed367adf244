#pragma once

// Plain data on its way to Python.

#include <pybind11/pybind11.h>

#include "weightstore/value.h"

namespace weightstore::python {

// dict, list, str, bytes, int, float, bool and None.
pybind11::object to_python(const Value& value);

}  // namespace weightstore::python
