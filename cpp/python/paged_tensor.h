#pragma once

// A tensor somebody acquired from a pager, as a Python object. Written against Python's own interface: acquiring a
// tensor that is resident takes less than pybind11 needs for one call.

#include <pybind11/pybind11.h>

#include "weightstore/pager.h"

namespace weightstore::python {

// Makes the type `PagedTensor`, to be derived from. GIL held, as for all of these.
pybind11::object make_paged_tensor_type();

// An object of a type derived from it. Holds the tensor and the pager it is from, and shows the pager to
// the garbage collector.
PyObject* new_paged_tensor(PyTypeObject* type, ResidentTensor tensor, PyObject* pager);

}  // namespace weightstore::python
