#include "bindings.h"
#include "gil.h"
#include "memory.h"
#include "py_object.h"
#include "weightstore/transform.h"

namespace weightstore::python {

namespace {

Memory transposed(const py::object& data, const std::string& dtype, std::uint64_t rows, std::uint64_t columns) {
  const SharedBytes in = buffer_bytes(data);
  const std::size_t item_bytes = item_bytes_of(dtype);
  ReleaseGil nogil;
  Memory out = allocate_memory(in.bytes.size());
  transpose(in.bytes, item_bytes, rows, columns, {out.data(), out.size()});
  return out;
}

Memory converted(const py::object& data, const std::string& from_name, const std::string& to_name) {
  const SharedBytes in = buffer_bytes(data);
  const DType from = dtype_named(from_name);
  const DType to = dtype_named(to_name);
  ReleaseGil nogil;
  Memory out = allocate_memory(cast_size(in.bytes.size(), from, to));
  cast(in.bytes, from, to, {out.data(), out.size()});
  return out;
}

}  // namespace

void init_transform(py::module_& m) {
  m.def("transpose", &transposed, py::arg("data"), py::arg("dtype"), py::arg("rows"), py::arg("columns"),
        "The transpose of a row-major matrix, in new memory.");
  m.def("cast", &converted, py::arg("data"), py::arg("from_dtype"), py::arg("to_dtype"),
        "The same numbers as another floating-point type, in new memory.");
}

}  // namespace weightstore::python
