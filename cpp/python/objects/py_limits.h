#pragma once

#include <pybind11/pybind11.h>

#include "weightstore/read_options.h"

namespace weightstore::python {

// The limits that a mapping of the fields' names to integers changes; None changes none. Throws Error(kInvalidArgument)
// naming a field that does not exist or a number that it cannot have. GIL held.
Limits limits_of(const pybind11::object& mapping);

}  // namespace weightstore::python
