#include "bindings.h"
#include "gil.h"
#include "io/file_source.h"
#include "opaque.h"
#include "py_object.h"
#include "py_source.h"
#include "py_value.h"
#include "weightstore/pytorch.h"

namespace weightstore::python {

namespace {

py::object read_config(const std::shared_ptr<const ByteSource>& source, const py::str& key, const std::string& opaque) {
  const std::string text(utf8_of(key));
  const pytorch::Options options{opaque_named(opaque)};
  Value value;
  {
    ReleaseGil nogil;
    value = pytorch::read_config(*source, text, {}, options);
  }
  return to_python(value);
}

}  // namespace

void init_pytorch(py::module_& m) {
  const auto key = py::arg("key") = "";
  const auto opaque = py::arg("opaque") = "error";
  m.def(
      "read_config",
      [](const py::object& path, const py::str& part, const std::string& unknown) {
        const auto target = to_path(path);
        std::shared_ptr<const ByteSource> source;
        {
          ReleaseGil nogil;
          source = io::open_file(target, false, io::system_file_ops());
        }
        return read_config(source, part, unknown);
      },
      py::arg("path"), key, py::kw_only(), opaque, "What a .pt file holds beside tensors, as plain data.");
  m.def(
      "read_config_buffer",
      [](const py::object& data, const py::str& part, const std::string& unknown) {
        return read_config(buffer_source(data), part, unknown);
      },
      py::arg("data"), key, py::kw_only(), opaque);
}

}  // namespace weightstore::python
