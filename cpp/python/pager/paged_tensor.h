#pragma once

// A tensor that a caller has acquired from a pager, as a Python object. It is written against Python's own interface,
// because acquiring a resident tensor takes less time than pybind11 needs for one call.

#include <pybind11/pybind11.h>

#include "weightstore/pager.h"

namespace weightstore::python {

// Makes the type `PagedTensor`, to be derived from. The caller holds the GIL, here and below.
pybind11::object make_paged_tensor_type();

// For a type that is derived from it, before its first object. A type that adds methods alone frees its objects as the
// base type does, without the search that Python makes for a class of its own.
void prepare_handle_type(PyTypeObject* type);

// An object of a type that is derived from it. The object holds the tensor and its pager, and shows the pager to the
// garbage collector.
PyObject* new_paged_tensor(PyTypeObject* type, ResidentTensor tensor, PyObject* pager);

}  // namespace weightstore::python
