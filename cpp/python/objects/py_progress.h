#pragma once

#include <pybind11/pybind11.h>

#include "weightstore/progress.h"

namespace weightstore::python {

// A Progress that answers to Ctrl-C about ten times a second and, unless `callback` is None, calls it as
// callback(done, total, name). Returning False cancels; any other result goes on; what it raises is raised again from
// the operation. Made with the GIL held, called without it.
Progress make_progress(pybind11::object callback);

}  // namespace weightstore::python
