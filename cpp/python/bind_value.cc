// Plain data and the codecs of it: for tests against independent libraries, and for metadata that holds JSON.

#include <algorithm>

#include "bindings.h"
#include "codec/cbor.h"
#include "codec/json.h"
#include "objects/py_object.h"
#include "objects/py_value.h"
#include "weightstore/error.h"

namespace weightstore::python {

namespace {

constexpr int kMaxDepth = 200;

struct ToPython {
  py::object operator()(const Value::Null&) const { return py::none(); }
  py::object operator()(bool v) const { return py::bool_(v); }
  py::object operator()(std::int64_t v) const { return py::int_(v); }
  py::object operator()(std::uint64_t v) const { return py::int_(v); }
  py::object operator()(double v) const { return py::float_(v); }
  py::object operator()(const std::string& v) const { return to_str(v); }
  py::object operator()(const Value::Bytes& v) const {
    return py::bytes(reinterpret_cast<const char*>(v.data()), v.size());
  }
  py::object operator()(const Value::List& v) const {
    py::list list(v.size());
    for (std::size_t i = 0; i < v.size(); ++i) {
      PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), to_python(v[i]).release().ptr());
    }
    return list;
  }
  py::object operator()(const Value::Map& v) const {
    py::dict dict;
    for (const auto& [key, item] : v) {
      const py::object name = to_key(key);
      // Keys of a .pt file that differ there may be alike as plain data.
      if (dict.contains(name)) {
        throw Error(ErrorCode::kUnsupported, "a dict with two keys that are the same as plain data, " +
                                                 printable(std::string(py::str(name.attr("__repr__")()))) +
                                                 "; read the parts you need by their own keys");
      }
      dict[name] = to_python(item);
    }
    return dict;
  }

  // Lists are no keys in Python; tuples are.
  static py::object to_key(const Value& key) {
    if (key.get_if<Value::Map>() != nullptr) {
      throw Error(ErrorCode::kUnsupported, "a dict with a key that has a dict inside");
    }
    const auto* list = key.get_if<Value::List>();
    if (list == nullptr) return to_python(key);
    py::tuple tuple(list->size());
    for (std::size_t i = 0; i < list->size(); ++i) tuple[i] = to_key((*list)[i]);
    return tuple;
  }
};

// Memory of the objects that to_python() makes, as CPython allocates it on 64 bits, and of what a Value has on the
// heap.
struct PythonBytes {
  static constexpr std::uint64_t kText = 48;  // std::string of a Value
  static constexpr std::uint64_t kBox = 48;   // std::vector of a Value, and what its elements take beside themselves
  static constexpr std::uint64_t kSmallDict = 5;

  std::uint64_t operator()(const Value::Null&) const { return 0; }
  std::uint64_t operator()(bool) const { return 0; }
  std::uint64_t operator()(std::int64_t v) const { return v >= -5 && v <= 256 ? 0 : 32; }
  std::uint64_t operator()(std::uint64_t) const { return 48; }
  std::uint64_t operator()(double) const { return 32; }
  std::uint64_t operator()(const std::string& v) const {
    const bool ascii = std::all_of(v.begin(), v.end(), [](char c) { return (c & 0x80) == 0; });
    const std::uint64_t here = kText + (v.size() < sizeof(v) / 2 ? 0 : v.capacity() + 16);
    return here + (ascii ? 64 + v.size() : 96 + 4 * v.size());
  }
  std::uint64_t operator()(const Value::Bytes& v) const { return kBox + v.size() + 64 + v.size(); }
  std::uint64_t operator()(const Value::List& v) const {
    if (v.empty()) return 80;
    std::uint64_t bytes = kBox + 88 + v.size() * (sizeof(Value) + sizeof(PyObject*));
    for (const Value& item : v) bytes += item.visit(*this);
    return bytes;
  }
  std::uint64_t operator()(const Value::Map& v) const {
    if (v.empty()) return 96;
    // Large ones grow threefold, beside the table they grow out of; keys that are not text take more room.
    std::uint64_t bytes = kBox + 2 * v.size() * sizeof(Value) + (v.size() <= kSmallDict ? 208 : 112 * v.size());
    bool texts = true;
    for (const auto& [key, item] : v) {
      bytes += key.visit(*this) + item.visit(*this);
      texts = texts && key.get_if<std::string>() != nullptr;
    }
    return bytes + (texts ? 0 : 48);
  }
};

Value int_value(py::handle object) {
  int overflow = 0;
  const long long small = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (small == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (overflow == 0) return Value(static_cast<std::int64_t>(small));
  const unsigned long long large = PyLong_AsUnsignedLongLong(object.ptr());
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  return Value(static_cast<std::uint64_t>(large));
}

Value from_python(py::handle object, int depth = 0) {
  if (depth > kMaxDepth) throw py::value_error("nested too deeply");
  if (object.is_none()) return Value();
  if (PyBool_Check(object.ptr())) return Value(object.ptr() == Py_True);
  if (PyLong_Check(object.ptr())) return int_value(object);
  if (PyFloat_Check(object.ptr())) return Value(PyFloat_AS_DOUBLE(object.ptr()));
  if (py::isinstance<py::str>(object)) return Value(std::string(utf8_of(py::reinterpret_borrow<py::str>(object))));
  if (py::isinstance<py::bytes>(object)) {
    const std::string_view text = py::reinterpret_borrow<py::bytes>(object);
    const auto* data = reinterpret_cast<const std::byte*>(text.data());
    return Value(Value::Bytes(data, data + text.size()));
  }
  if (py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object)) {
    Value::List list;
    for (py::handle item : object) list.push_back(from_python(item, depth + 1));
    return Value(std::move(list));
  }
  if (py::isinstance<py::dict>(object)) {
    Value::Map map;
    for (const auto& [key, item] : py::reinterpret_borrow<py::dict>(object)) {
      map.emplace_back(from_python(key, depth + 1), from_python(item, depth + 1));
    }
    return Value(std::move(map));
  }
  throw py::type_error("no plain data: " + std::string(Py_TYPE(object.ptr())->tp_name));
}

std::string_view text_of(const SharedBytes& shared) {
  return {reinterpret_cast<const char*>(shared.bytes.data()), shared.bytes.size()};
}

}  // namespace

std::uint64_t python_bytes(const Value& value) { return value.visit(PythonBytes{}); }

py::object to_python(const Value& value) { return value.visit(ToPython{}); }

void init_value(py::module_& m) {
  m.def(
      "json_decode", [](const py::object& text) { return to_python(json_decode(text_of(buffer_bytes(text)))); },
      py::arg("text"), "JSON text (bytes) to plain data.");
  m.def(
      "json_encode", [](const py::object& value) { return py::bytes(json_encode(from_python(value))); },
      py::arg("value"));
  m.def(
      "cbor_decode", [](const py::object& data) { return to_python(cbor_decode(buffer_bytes(data).bytes)); },
      py::arg("data"), "One CBOR item to plain data.");
  m.def(
      "cbor_encode", [](const py::object& value) { return py::bytes(cbor_encode(from_python(value))); },
      py::arg("value"));
}

}  // namespace weightstore::python
