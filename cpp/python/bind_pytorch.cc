#include "bindings.h"
#include "gil.h"
#include "io/file_source.h"
#include "objects/py_object.h"
#include "objects/py_source.h"
#include "objects/py_value.h"
#include "opaque.h"
#include "weightstore/error.h"
#include "weightstore/pytorch.h"

namespace weightstore::python {

namespace {

// Python's objects are larger than what the file says about them: an empty list has two bytes there, and 72 here.
constexpr std::uint64_t kPythonBytes = 16u << 20;
constexpr std::uint64_t kPythonBytesPerByte = 24;

void check_python_bytes(const Value& value, const ByteSource& source) {
  const std::uint64_t needed = python_bytes(value);
  const std::uint64_t allowed = kPythonBytes + kPythonBytesPerByte * source.size();
  if (needed <= allowed) return;
  throw Error(ErrorCode::kLimit, "what the file holds beside tensors takes " + std::to_string(needed) +
                                     " bytes of memory; a file of " + std::to_string(source.size()) +
                                     " bytes may take " + std::to_string(allowed) + ". Read a part, by its key")
      .of_format(Format::kPytorch)
      .in_file(source.name());
}

py::object read_config(const std::shared_ptr<const ByteSource>& source, const py::str& key, const std::string& opaque) {
  const std::string text(utf8_of(key));
  const pytorch::Options options{opaque_named(opaque)};
  Value value;
  {
    ReleaseGil nogil;
    value = pytorch::read_config(*source, text, {}, options);
    check_python_bytes(value, *source);
  }
  try {
    return to_python(value);
  } catch (Error& error) {
    error.of_format(Format::kPytorch).in_file(source->name());
    throw;
  }
}

}  // namespace

void init_pytorch(py::module_& m) {
  const auto key = py::arg("key") = "";
  const auto opaque = py::arg("opaque") = "skip";
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
