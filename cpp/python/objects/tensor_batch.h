#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectable.h"
#include "objects/tensor_exchange.h"
#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"
#include "weightstore/tensor.h"

namespace weightstore::python {

// What is known of one array or tensor.
struct KnownArray {
  std::byte* data;
  DType dtype;
  bool is_torch;
  bool is_row_major;
  bool is_writable;
  std::uint32_t rank;
  std::size_t first_dim;  // of its sizes and strides in the batch
  std::uint64_t nbytes;   // of all elements
};

// Many arrays and tensors, looked at in one call: where their elements lie, so that C++ can read and write them. Torch
// tensors are seen through a TensorExchange, numpy arrays through the buffer protocol. Values that are anything else,
// or not simply memory with strides, are left to Python.
//
// A batch says where the memory was when it was made. It keeps the values alive, and the storages of tensors, so that
// their memory stays also when another thread gives a tensor other memory. Nothing can stop code that resizes a storage
// or an array meanwhile. All functions need the GIL.
class TensorBatch {
 public:
  // exchange: null leaves torch tensors to Python. array_class: numpy's; null leaves arrays to Python.
  TensorBatch(py::list values, const TensorExchange* exchange, py::handle array_class);

  std::size_t size() const { return known_.size(); }
  // Null for a value that is left to Python.
  const KnownArray* known(std::size_t i) const { return known_[i] ? &*known_[i] : nullptr; }
  std::span<const std::int64_t> sizes(const KnownArray& array) const;
  std::span<const std::int64_t> byte_strides(const KnownArray& array) const;
  // An object that keeps the known values and the storages of the tensors among them alive.
  const py::list& kept() const { return kept_; }

  // The numbers of the values that are left to Python.
  std::vector<std::size_t> others() const;
  // Whether the elements of two known values share a byte, or lie between those of one another.
  bool has_overlap() const;
  // The known torch tensors that are the same as an earlier one: the same memory, with the same type, sizes and
  // strides; or, without elements, the same object. By their numbers, those of the first.
  py::dict same_as_earlier() const;

  // A value may refer to the frame that holds the batch, for example in the traceback of an error.
  void visit(Visitor& visitor) const;

 private:
  bool look_at_tensor(PyObject* value, const TensorExchange& exchange);
  bool look_at_array(PyObject* value);
  void add(KnownArray array, std::span<const std::int64_t> sizes, std::span<const std::int64_t> byte_strides);

  const py::list values_;
  py::list kept_;
  std::vector<std::optional<KnownArray>> known_;
  std::vector<std::int64_t> dims_;
};

}  // namespace weightstore::python
