#include "objects/py_object.h"

#include "gil.h"
#include "weightstore/error.h"

namespace weightstore::python {

SharedObject share(py::object object) { return SharedObject(object.release().ptr(), &drop_reference); }

py::str to_str(std::string_view text) {
  PyObject* decoded = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

py::str path_to_str(std::string_view path) {
  PyObject* decoded = PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<Py_ssize_t>(path.size()));
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(decoded);
}

std::optional<std::string> path_of_str(const py::str& text) {
  PyObject* encoded = PyUnicode_EncodeFSDefault(text.ptr());
  if (encoded == nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  return std::string(std::string_view(py::reinterpret_steal<py::bytes>(encoded)));
}

std::filesystem::path to_path(py::handle path) {
  PyObject* encoded = nullptr;
  if (!PyUnicode_FSConverter(path.ptr(), &encoded)) throw py::error_already_set();
  const auto owner = py::reinterpret_steal<py::bytes>(encoded);
  return std::filesystem::path(std::string(std::string_view(owner)));
}

std::string_view utf8_of(const py::str& text) {
  Py_ssize_t length = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &length);
  if (data == nullptr) throw py::error_already_set();
  return {data, static_cast<std::size_t>(length)};
}

DType dtype_named(const std::string& name) {
  if (const auto dtype = dtype_from_name(name)) return *dtype;
  throw Error(ErrorCode::kInvalidArgument, "there is no element type '" + name + "'");
}

std::size_t item_bytes_of(const std::string& name) {
  const unsigned bits = bits_of(dtype_named(name));
  if (bits == 0 || bits % 8 != 0) {
    throw Error(ErrorCode::kUnsupported, "elements of type " + name + " are not whole bytes to be moved");
  }
  return bits / 8;
}

SharedBytes buffer_bytes(py::handle object) {
  struct Held {
    Py_buffer view{};
    ~Held() { release_buffer(view); }
  };
  auto held = std::make_shared<Held>();
  if (PyObject_GetBuffer(object.ptr(), &held->view, PyBUF_SIMPLE) != 0) throw py::error_already_set();
  const auto* data = static_cast<const std::byte*>(held->view.buf);
  const auto size = static_cast<std::size_t>(held->view.len);
  return {ConstBytes(data, size), std::shared_ptr<const void>(std::move(held))};
}

}  // namespace weightstore::python
