// Plain data and the codecs of it: for tests against independent libraries, and for metadata that holds JSON.

#include "bindings.h"
#include "codec/cbor.h"
#include "codec/json.h"
#include "py_object.h"
#include "py_value.h"
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
    py::list list;
    for (const Value& item : v) list.append(to_python(item));
    return list;
  }
  py::object operator()(const Value::Map& v) const {
    py::dict dict;
    for (const auto& [key, item] : v) dict[to_python(key)] = to_python(item);
    return dict;
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

py::object to_python(const Value& value) { return std::visit(ToPython{}, value.data()); }

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
