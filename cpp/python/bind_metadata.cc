#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings.h"
#include "objects/py_metadata.h"
#include "objects/py_object.h"
#include "weightstore/typed_metadata.h"

namespace weightstore::python {

namespace {

MetadataView value_at(const TypedMetadata& metadata, std::size_t i) {
  if (i >= metadata.size()) throw py::index_error("no entry has this number");
  return metadata.value(i);
}

py::list keys(const TypedMetadata& metadata) {
  py::list list(metadata.size());
  for (std::size_t i = 0; i < metadata.size(); ++i) list[i] = to_str(metadata.key(i));
  return list;
}

using NewEntry = std::tuple<py::str, std::optional<std::string>, py::object>;

std::shared_ptr<TypedMetadata> make_metadata(const std::vector<NewEntry>& entries) {
  auto metadata = std::make_shared<TypedMetadata>();
  for (const auto& [key, type, value] : entries) {
    const EncodedValue encoded = encode_metadata(utf8_of(key), value, type);
    metadata->add(utf8_of(key), encoded.type, encoded.bytes);
  }
  return metadata;
}

}  // namespace

void init_metadata(py::module_& m) {
  py::class_<TypedMetadata, std::shared_ptr<TypedMetadata>>(m, "TypedMetadata", "Metadata of a GGUF file, by number.")
      .def(py::init(&make_metadata), py::arg("entries"), "(key, type or None, value) of each entry; keys are unique.")
      .def("__len__", &TypedMetadata::size)
      .def("keys", &keys, "All keys, in the order of the file.")
      .def(
          "value", [](const TypedMetadata& t, std::size_t i) { return to_python(value_at(t, i)); }, py::arg("entry"))
      .def(
          "type", [](const TypedMetadata& t, std::size_t i) { return to_str(value_at(t, i).type_name()); },
          py::arg("entry"), "Such as UINT32 or ARRAY[STRING].");
}

}  // namespace weightstore::python
