#pragma once

// torch's tensors without its headers and without Python calls, through the functions of DLPack's exchange API.

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <span>

#include "dlpack.h"
#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"

namespace weightstore::python {

namespace py = pybind11;

// The type that DLPack has for the elements of a stored type, if both count elements alike and in whole bytes.
std::optional<dlpack::DataType> dlpack_type(DType dtype);
// The inverse, for types that can be written. nullopt for all others.
std::optional<DType> dtype_of(dlpack::DataType type);

// Made once for a library. All functions need the GIL.
class TensorExchange {
 public:
  // capsule: `__dlpack_c_exchange_api__` of the class of tensors. classes: the classes whose tensors are nothing but
  // memory with strides, unlike those of a subclass. Throws TypeError for another capsule, and Error(kUnsupported) for
  // a version without the functions that are needed.
  TensorExchange(const py::object& capsule, py::tuple classes);

  // Describes a tensor whose elements lie in memory as they are: an object of exactly one of the classes, on the CPU,
  // without pending negation or conjugation, and inside its storage. False for any other object; look at that one in
  // Python. What `out` points to is valid until other code runs. Its elements stay where they are as long as `storage`
  // lives, which is null without elements, and nobody resizes it: a tensor can be given another storage.
  bool look_at(PyObject* object, dlpack::Tensor& out, py::object& storage) const;

  // A tensor over row-major memory, which it keeps. The memory is aligned for the type.
  py::object make(SharedMutableBytes memory, dlpack::DataType type, std::span<const std::uint64_t> shape) const;

 private:
  bool lies_in(const py::object& storage, const dlpack::Tensor& tensor, std::uint64_t span) const;

  const dlpack::ExchangeApi* api_;
  py::tuple classes_;
  // Names of methods. Interned, so that they are found quickly.
  py::str is_neg_;
  py::str is_conj_;
  py::str untyped_storage_;
  py::str nbytes_;
  py::str data_ptr_;
};

}  // namespace weightstore::python
