#include "bindings.h"
#include "gil.h"
#include "weightstore/version.h"

PYBIND11_MODULE(_core, m) {
  using namespace weightstore::python;
  m.doc() = "The C++ core of weightstore. Use the package; what is here may change with any release.";
  m.attr("__version__") = WEIGHTSTORE_VERSION;
  init_gil(m);
  init_error(m);
  init_memory(m);
  init_value(m);
  init_format(m);
  init_quant(m);
  init_metadata(m);
  init_reader(m);
  init_batch(m);
  init_producer(m);
  init_writer(m);
  init_convert(m);
  init_look(m);
  init_dlpack(m);
  init_pager(m);
  init_pytorch(m);
  init_checkpoint(m);
  init_boxes(m);
}
