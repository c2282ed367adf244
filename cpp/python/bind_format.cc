// Formats, element types and checksums.

#include <string>

#include "bindings.h"
#include "collectable.h"
#include "formats/registry.h"
#include "gil.h"
#include "objects/py_object.h"
#include "objects/py_source.h"
#include "weightstore/checksum.h"
#include "weightstore/dtype.h"
#include "weightstore/format.h"
#include "weightstore/kernels.h"

namespace weightstore::python {

namespace {

// Names of the element types for which `wanted` holds.
template <class Wanted>
py::tuple dtype_names(Wanted wanted) {
  py::list names;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (wanted(static_cast<DType>(i))) names.append(to_str(name_of(static_cast<DType>(i))));
  }
  return names;
}

py::tuple endings_tuple(const FormatSpec& spec) {
  py::list endings;
  for (const std::string_view ending : spec.endings) endings.append(to_str(ending));
  return endings;
}

// The types that get another name in a file of the format, and that name.
py::dict renamed_dtypes(const FormatSpec& spec) {
  py::dict renamed;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    const auto stored = spec.stored_as(dtype);
    if (stored && *stored != dtype) renamed[to_str(name_of(dtype))] = to_str(name_of(*stored));
  }
  return renamed;
}

void bind_formats(py::module_& m) {
  py::class_<FormatSpec>(m, "Format", "What the library knows about a file format.", only_from_functions())
      .def_property_readonly("name", [](const FormatSpec& f) { return to_str(f.name); })
      .def_property_readonly(
          "title", [](const FormatSpec& f) { return to_str(f.title); }, "The name that people write.")
      .def_property_readonly("endings", &endings_tuple, "Of file names, in lower case; the first is recommended.")
      .def_property_readonly("writable", &FormatSpec::is_writable)
      .def_readonly("is_index", &FormatSpec::is_index, "The file names others, which hold the tensors.")
      .def_property_readonly(
          "dtypes", [](const FormatSpec& f) { return dtype_names([&](DType dtype) { return f.holds(dtype); }); },
          "The names of the element types that a file holds.")
      .def_property_readonly("renamed_dtypes", &renamed_dtypes, "Types that are stored under another's name.")
      .def_readonly("has_scalars", &FormatSpec::has_scalars)
      .def_readonly("has_param_ids", &FormatSpec::has_param_ids)
      .def_readonly("has_typed_metadata", &FormatSpec::has_typed_metadata)
      .def("__repr__", [](const FormatSpec& f) { return "<Format " + std::string(f.name) + ">"; });
  py::list formats;
  for (const FormatSpec* spec : all_formats()) formats.append(py::cast(spec, py::return_value_policy::reference));
  m.attr("FORMATS") = py::tuple(formats);
}

}  // namespace

void init_format(py::module_& m) {
  bind_formats(m);
  // name -> bits of an element
  py::dict dtypes;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    dtypes[to_str(name_of(dtype))] = bits_of(dtype);
  }
  m.attr("DTYPES") = dtypes;
  // name -> (elements, bytes) of a block
  py::dict blocks;
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (const auto block = block_of(dtype))
      blocks[to_str(name_of(dtype))] = py::make_tuple(block->elements, block->bytes);
  }
  m.attr("BLOCKS") = blocks;
  m.attr("DEQUANTIZABLE") = dtype_names(can_dequantize);
  m.attr("QUANTIZABLE") = dtype_names(can_quantize);

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
