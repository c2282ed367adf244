#include "objects/py_metadata.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>
#include <variant>

#include "base/little_endian.h"
#include "weightstore/error.h"

namespace weightstore::python {
namespace {

namespace py = pybind11;

// Of UTF-8, with bytes that are none as lone surrogates.
py::object decoded_text(std::string_view text) {
  PyObject* decoded = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape");
  if (decoded == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(decoded);
}

py::object scalar_to_python(const MetadataView& value) {
  return std::visit(
      [](auto v) -> py::object {
        if constexpr (std::is_same_v<decltype(v), std::string_view>) {
          return decoded_text(v);
        } else {
          return py::cast(v);
        }
      },
      value.scalar());
}

// ---- from Python ----------------------------------------------------------------------------------------------------

class Encoder {
 public:
  explicit Encoder(std::string_view key) : key_(key) {}

  EncodedValue encode(py::handle value, std::optional<std::string_view> type_name) {
    const MetadataType type = type_name ? outer_type(*type_name) : type_of(value);
    std::string bytes;
    append(bytes, value, type, type_name ? inner_name(*type_name) : std::nullopt);
    return {type, std::move(bytes)};
  }

 private:
  static constexpr std::string_view kArrayOf = "ARRAY[";

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::kInvalidArgument, "the metadata entry '" + printable(key_) + "': " + why);
  }
  [[noreturn]] void refuse_class(py::handle value) const {
    throw py::type_error("the metadata entry '" + printable(key_) + "': " + Py_TYPE(value.ptr())->tp_name +
                         " is neither text, a number, a boolean nor a list of these");
  }

  MetadataType outer_type(std::string_view name) const {
    const bool is_array = name.starts_with(kArrayOf) && name.ends_with(']');
    const auto type = is_array ? std::optional(MetadataType::kArray) : metadata_type_from_name(name);
    if (type) return *type;
    refuse("there is no type '" + std::string(name) +
           "'; types are UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, "
           "BOOL, STRING, UINT64, INT64, FLOAT64, and ARRAY[...] of one of them");
  }
  static std::optional<std::string_view> inner_name(std::string_view name) {
    if (!name.starts_with(kArrayOf)) return std::nullopt;
    return name.substr(kArrayOf.size(), name.size() - kArrayOf.size() - 1);
  }

  static bool is_list(py::handle value) { return PyList_Check(value.ptr()) || PyTuple_Check(value.ptr()); }
  static bool is_text(py::handle value) { return PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()); }

  MetadataType type_of(py::handle value) const {
    if (is_text(value)) return MetadataType::kString;
    if (PyBool_Check(value.ptr())) return MetadataType::kBool;
    if (PyFloat_Check(value.ptr())) return MetadataType::kFloat32;
    if (is_list(value)) return MetadataType::kArray;
    if (!PyLong_Check(value.ptr())) refuse_class(value);
    constexpr std::array kTypes = {MetadataType::kUint32, MetadataType::kInt32, MetadataType::kInt64,
                                   MetadataType::kUint64};
    for (const MetadataType type : kTypes) {
      if (holds(type, value)) return type;
    }
    refuse("the number does not fit 64 bits");
  }

  MetadataType type_of_items(const py::sequence& list) const {
    if (list.empty()) refuse("an empty list does not tell its type; use GgufValue([], \"ARRAY[STRING]\")");
    const MetadataType first = type_of(list[0]);
    const bool is_integer = PyLong_Check(py::object(list[0]).ptr()) && first != MetadataType::kBool;
    if (!is_integer) {
      for (const py::handle item : list) {
        if (type_of(item) != first) refuse_mixed();
      }
      return first;
    }
    constexpr std::array kTypes = {MetadataType::kInt32, MetadataType::kUint32, MetadataType::kInt64,
                                   MetadataType::kUint64};
    for (const MetadataType type : kTypes) {
      bool holds_all = true;
      for (const py::handle item : list) {
        if (!PyLong_Check(item.ptr()) || PyBool_Check(item.ptr())) refuse_mixed();
        holds_all = holds_all && holds(type, item);
      }
      if (holds_all) return type;
    }
    refuse("no integer type of 64 bits holds all numbers of the list");
  }
  [[noreturn]] void refuse_mixed() const {
    throw py::type_error("the metadata entry '" + printable(key_) + "': the items of a list have one type");
  }

  struct Range {
    long long least;
    unsigned long long most;
  };
  static Range range_of(MetadataType type) {
    switch (type) {
      case MetadataType::kUint8:
        return {0, UINT8_MAX};
      case MetadataType::kInt8:
        return {INT8_MIN, INT8_MAX};
      case MetadataType::kUint16:
        return {0, UINT16_MAX};
      case MetadataType::kInt16:
        return {INT16_MIN, INT16_MAX};
      case MetadataType::kUint32:
        return {0, UINT32_MAX};
      case MetadataType::kInt32:
        return {INT32_MIN, INT32_MAX};
      case MetadataType::kInt64:
        return {INT64_MIN, INT64_MAX};
      default:
        return {0, UINT64_MAX};
    }
  }

  // The bits of an int that the type holds.
  static std::optional<std::uint64_t> bits_in(MetadataType type, py::handle value) {
    const Range range = range_of(type);
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow == 0) {
      const bool fits = number >= range.least && (number < 0 || static_cast<unsigned long long>(number) <= range.most);
      return fits ? std::optional(static_cast<std::uint64_t>(number)) : std::nullopt;
    }
    if (overflow < 0 || range.most != UINT64_MAX) return std::nullopt;
    const unsigned long long large = PyLong_AsUnsignedLongLong(value.ptr());
    if (PyErr_Occurred() == nullptr) return large;
    PyErr_Clear();
    return std::nullopt;
  }
  static bool holds(MetadataType type, py::handle value) { return bits_in(type, value).has_value(); }

  void append(std::string& out, py::handle value, MetadataType type, std::optional<std::string_view> inner) {
    switch (type) {
      case MetadataType::kString:
        return append_text(out, value);
      case MetadataType::kArray:
        return append_list(out, value, inner);
      case MetadataType::kBool:
        if (!PyBool_Check(value.ptr())) refuse_class(value);
        out.push_back(value.ptr() == Py_True ? 1 : 0);
        return;
      case MetadataType::kFloat32:
      case MetadataType::kFloat64:
        return append_float(out, value, type);
      default:
        break;
    }
    if (!PyLong_Check(value.ptr()) || PyBool_Check(value.ptr())) refuse_class(value);
    const auto bits = bits_in(type, value);
    if (!bits) {
      refuse(std::string(name_of(type)) + " cannot represent " + py::cast<std::string>(py::str(value)));
    }
    append_little_endian(out, *bits, bytes_of(type));
  }

  void append_text(std::string& out, py::handle value) const {
    if (!is_text(value)) refuse_class(value);
    auto bytes = py::reinterpret_borrow<py::object>(value);
    if (PyUnicode_Check(value.ptr())) {
      bytes = py::reinterpret_steal<py::object>(PyUnicode_AsEncodedString(value.ptr(), "utf-8", "surrogateescape"));
      if (!bytes) throw py::error_already_set();
    }
    append_little_endian(out, static_cast<std::uint64_t>(PyBytes_GET_SIZE(bytes.ptr())), 8);
    out.append(PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr())));
  }

  void append_float(std::string& out, py::handle value, MetadataType type) const {
    if (!PyFloat_Check(value.ptr()) && (!PyLong_Check(value.ptr()) || PyBool_Check(value.ptr()))) refuse_class(value);
    const double number = PyFloat_AsDouble(value.ptr());
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (type == MetadataType::kFloat64) return append_little_endian(out, std::bit_cast<std::uint64_t>(number), 8);
    const auto narrow = static_cast<float>(number);
    if (std::isfinite(number) && !std::isfinite(narrow)) {
      refuse("FLOAT32 cannot represent " + py::cast<std::string>(py::str(value)) +
             "; use GgufValue(number, \"FLOAT64\")");
    }
    append_little_endian(out, std::bit_cast<std::uint32_t>(narrow), 4);
  }

  void append_list(std::string& out, py::handle value, std::optional<std::string_view> item_name) {
    if (!is_list(value)) refuse_class(value);
    if (++depth_ > kMaxMetadataDepth) refuse("lists are nested more than 8 deep");
    const auto list = py::reinterpret_borrow<py::sequence>(value);
    const MetadataType item = item_name ? outer_type(*item_name) : type_of_items(list);
    const auto inner = item_name ? inner_name(*item_name) : std::nullopt;
    append_little_endian(out, static_cast<std::uint64_t>(item), 4);
    append_little_endian(out, list.size(), 8);
    for (const py::handle one : list) append(out, one, item, inner);
    --depth_;
  }

  std::string_view key_;
  unsigned depth_ = 0;
};

}  // namespace

pybind11::object to_python(const MetadataView& value) {
  if (!value.is_array()) return scalar_to_python(value);
  py::list list(static_cast<std::size_t>(value.size()));
  Py_ssize_t i = 0;
  value.for_each([&](const MetadataView& item) { PyList_SET_ITEM(list.ptr(), i++, to_python(item).release().ptr()); });
  return list;
}

EncodedValue encode_metadata(std::string_view key, pybind11::handle value, const std::optional<std::string>& type) {
  return Encoder(key).encode(value, type ? std::optional<std::string_view>(*type) : std::nullopt);
}

}  // namespace weightstore::python
