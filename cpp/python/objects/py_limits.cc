#include "objects/py_limits.h"

#include <array>
#include <string>

#include "objects/py_object.h"
#include "weightstore/error.h"

namespace weightstore::python {
namespace {

namespace py = pybind11;

struct Field {
  std::string_view name;
  std::uint64_t Limits::* number;
};
constexpr std::array kFields = {
    Field{"rank", &Limits::rank},
    Field{"safetensors_header_bytes", &Limits::safetensors_header_bytes},
    Field{"safetensors_index_bytes", &Limits::safetensors_index_bytes},
    Field{"burnpack_metadata_bytes", &Limits::burnpack_metadata_bytes},
    Field{"burnpack_tensors", &Limits::burnpack_tensors},
    Field{"burnpack_tensor_bytes", &Limits::burnpack_tensor_bytes},
    Field{"burnpack_file_bytes", &Limits::burnpack_file_bytes},
    Field{"gguf_header_bytes", &Limits::gguf_header_bytes},
    Field{"zip_records", &Limits::zip_records},
    Field{"pytorch_pickle_bytes", &Limits::pytorch_pickle_bytes},
    Field{"pytorch_memory_bytes", &Limits::pytorch_memory_bytes},
    Field{"expanded_bytes", &Limits::expanded_bytes},
};

// The reader of pickles calls itself for each level.
constexpr std::string_view kDepth = "pytorch_depth";
constexpr std::uint64_t kGreatestDepth = 1000;

[[noreturn]] void refuse(std::string message) {
  throw Error(ErrorCode::kInvalidArgument, "limits: " + std::move(message));
}

std::uint64_t number_of(std::string_view name, py::handle value) {
  const bool is_integer = PyLong_Check(value.ptr()) && !PyBool_Check(value.ptr());
  const unsigned long long number = is_integer ? PyLong_AsUnsignedLongLong(value.ptr()) : 0;
  if (!is_integer || PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    refuse("'" + std::string(name) + "' is " + py::cast<std::string>(py::repr(value)) +
           "; it is an integer from 0 to 2^64 - 1");
  }
  return number;
}

void set(Limits& limits, std::string_view name, py::handle value) {
  const std::uint64_t number = number_of(name, value);
  if (name == kDepth) {
    if (number > kGreatestDepth) refuse("'pytorch_depth' is at most " + std::to_string(kGreatestDepth));
    limits.pytorch_depth = static_cast<std::uint32_t>(number);
    return;
  }
  for (const Field& field : kFields) {
    if (field.name != name) continue;
    limits.*field.number = number;
    return;
  }
  std::string names(kDepth);
  for (const Field& field : kFields) names += ", " + std::string(field.name);
  refuse("there is no limit '" + std::string(name) + "'; there are " + names);
}

}  // namespace

Limits limits_of(const py::object& mapping) {
  Limits limits;
  if (mapping.is_none()) return limits;
  for (const auto& [name, value] : py::dict(mapping)) {
    if (!py::isinstance<py::str>(name)) refuse("names are str, not " + py::cast<std::string>(py::repr(name)));
    set(limits, utf8_of(py::reinterpret_borrow<py::str>(name)), value);
  }
  return limits;
}

}  // namespace weightstore::python
