// Formats, element types and checksums.

#include "bindings.h"
#include "gil.h"
#include "py_object.h"
#include "py_source.h"
#include "weightstore/checksum.h"
#include "weightstore/dtype.h"
#include "weightstore/format.h"

namespace weightstore::python {

void init_format(py::module_& m) {
  // name -> (bits, in SafeTensors, in Burnpack)
  py::dict dtypes;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    dtypes[to_str(name_of(dtype))] = py::make_tuple(bits_of(dtype), in_safetensors(dtype), in_burnpack(dtype));
  }
  m.attr("DTYPES") = dtypes;
  m.attr("CHECKSUM_KEY") = kChecksumKey;

  m.def(
      "detect_format", [](const py::object& data) { return to_str(to_string(detect_format(*buffer_source(data)))); },
      py::arg("data"), "The format of a file's bytes, by content.");
  m.def(
      "format_of_name", [](const py::str& name) { return to_str(to_string(format_of_name(utf8_of(name)))); },
      py::arg("name"));
  m.def(
      "crc32c",
      [](const py::object& data, std::uint32_t crc) {
        const SharedBytes shared = buffer_bytes(data);
        ReleaseGil nogil;
        return crc32c(shared.bytes, crc);
      },
      py::arg("data"), py::arg("crc") = 0);
}

}  // namespace weightstore::python
