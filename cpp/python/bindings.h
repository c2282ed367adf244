#pragma once

// The areas of the module `_core`; module.cc calls each once. One bind_<area>.cc a public header of the core.
//
// Rules for all of them: the GIL is released around everything that reads, writes, copies or waits; Python objects that
// C++ code holds meanwhile are SharedObjects (py_object.h); errors cross the border in bind_error.cc alone.

#include <pybind11/pybind11.h>

namespace weightstore::python {

namespace py = pybind11;

void init_error(py::module_& m);
void init_memory(py::module_& m);
void init_value(py::module_& m);
void init_format(py::module_& m);
void init_reader(py::module_& m);
void init_producer(py::module_& m);
void init_writer(py::module_& m);
void init_convert(py::module_& m);
void init_transform(py::module_& m);
void init_dlpack(py::module_& m);
void init_pager(py::module_& m);
void init_pytorch(py::module_& m);

}  // namespace weightstore::python
