#pragma once

// The subjects of the module `_core`: bind_<subject>.cc defines init_<subject>(), and module.cc calls each once.
//
// Rules for all subjects:
//  - A function that reads, writes, copies or waits releases the GIL meanwhile.
//  - C++ code that holds a Python object without the GIL holds it as a SharedObject (objects/py_object.h).
//  - Only bind_error.cc turns an Error into a Python exception.

#include <pybind11/pybind11.h>

namespace weightstore::python {

namespace py = pybind11;

void init_error(py::module_& m);
void init_memory(py::module_& m);
void init_value(py::module_& m);
void init_format(py::module_& m);
void init_quant(py::module_& m);
void init_metadata(py::module_& m);
void init_reader(py::module_& m);
void init_batch(py::module_& m);
void init_producer(py::module_& m);
void init_writer(py::module_& m);
void init_convert(py::module_& m);
void init_look(py::module_& m);
void init_dlpack(py::module_& m);
void init_pager(py::module_& m);
void init_pytorch(py::module_& m);
void init_checkpoint(py::module_& m);
void init_boxes(py::module_& m);

}  // namespace weightstore::python
