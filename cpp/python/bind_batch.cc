#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bindings.h"
#include "bound_reader.h"
#include "collectable.h"
#include "gil.h"
#include "memory.h"
#include "objects/py_object.h"
#include "objects/py_progress.h"
#include "objects/tensor_batch.h"
#include "objects/tensor_exchange.h"
#include "weightstore/reader.h"

namespace weightstore::python {

namespace {

// The type of a tensor of the file for torch, if torch can show the tensor as it is stored.
std::optional<dlpack::DataType> torch_type(const TensorTable& table, std::size_t tensor) {
  if (table.nbytes(tensor) == 0) return std::nullopt;
  return dlpack_type(table.dtype(tensor));
}

// torch wants memory that is aligned to the size of an item.
bool is_aligned(const SharedMutableBytes& memory, dlpack::DataType type) {
  return reinterpret_cast<std::uintptr_t>(memory.bytes.data()) % (type.bits / 8) == 0;
}

using Loaded = std::vector<std::optional<SharedMutableBytes>>;

Loaded private_views(const Reader& reader, std::span<const std::size_t> tensors) {
  Loaded views(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) views[i] = reader.private_view(tensors[i]);
  return views;
}

Loaded loaded(const Reader& reader, std::span<const std::size_t> tensors, const Progress& progress) {
  Loaded copies;
  copies.reserve(tensors.size());
  for (SharedMutableBytes& bytes : reader.load(tensors, progress)) copies.emplace_back(std::move(bytes));
  return copies;
}

py::dict load_tensors(const Reader& reader, const std::vector<std::size_t>& tensors, const TensorExchange& exchange,
                      const py::object& check, const py::object& make, bool views, py::object callback) {
  const TensorTable& table = reader.table();
  for (const std::size_t tensor : tensors) {
    if (!torch_type(table, checked(reader, tensor))) check(tensor);
  }
  const Progress progress = make_progress(std::move(callback));
  Loaded memory;
  {
    ReleaseGil nogil;
    memory = views ? private_views(reader, tensors) : loaded(reader, tensors, progress);
  }
  py::dict result;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto type = torch_type(table, tensors[i]);
    py::object made;
    if (type && memory[i] && is_aligned(*memory[i], *type)) {
      made = exchange.make(std::move(*memory[i]), *type, table.shape(tensors[i]));
    } else {
      made = make(tensors[i], memory[i] ? py::cast(Memory(std::move(*memory[i]))) : py::none());
    }
    const py::str name = to_str(table.name(tensors[i]));
    if (PyDict_SetItem(result.ptr(), name.ptr(), made.ptr()) != 0) throw py::error_already_set();
  }
  return result;
}

// Types that are shown alike.
DType shown_as(DType dtype) {
  switch (dtype) {
    case DType::kBoolU8:
      return DType::kBool;
    case DType::kFlex32:
      return DType::kF32;
    default:
      return dtype;
  }
}

bool fits(const TensorTable& table, std::size_t tensor, const TensorBatch& batch, const KnownArray& array) {
  if (!array.is_row_major || !array.is_writable || shown_as(table.dtype(tensor)) != array.dtype) return false;
  const auto sizes = batch.sizes(array);
  return table.nbytes(tensor) == array.nbytes &&
         std::ranges::equal(table.shape(tensor), sizes, {}, {}, [](std::int64_t n) { return std::uint64_t(n); });
}

// All or nothing: what does not fit is rare, and wants a closer look anyway.
std::optional<std::vector<std::size_t>> fitting(const Reader& reader, const py::list& names, const TensorBatch& batch) {
  if (names.size() != batch.size()) throw py::value_error("not as many names as values");
  std::vector<std::size_t> numbers;
  numbers.reserve(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const KnownArray* array = batch.known(i);
    const auto tensor = array == nullptr ? std::nullopt : find(reader, py::reinterpret_borrow<py::str>(names[i]));
    if (!tensor || !fits(reader.table(), *tensor, batch, *array)) return std::nullopt;
    numbers.push_back(*tensor);
  }
  return numbers;
}

void read_batch(const Reader& reader, const std::vector<std::size_t>& tensors, const TensorBatch& batch,
                py::object callback) {
  if (tensors.size() != batch.size()) throw py::value_error("not as many tensors as values");
  std::vector<Reader::Request> requests;
  requests.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const KnownArray* array = batch.known(i);
    if (array == nullptr || !fits(reader.table(), checked(reader, tensors[i]), batch, *array)) {
      throw py::value_error("a value does not fit its tensor");
    }
    requests.push_back({tensors[i], MutableBytes(array->data, array->nbytes)});
  }
  const Progress progress = make_progress(std::move(callback));
  ReleaseGil nogil;
  reader.read_many(requests, progress);
}

}  // namespace

void init_batch(py::module_& m) {
  py::class_<TensorExchange>(m, "TensorExchange", "The tensors of a library, through DLPack's exchange API.")
      .def(py::init<const py::object&, py::tuple>(), py::arg("capsule"), py::arg("classes"));
  py::class_<TensorBatch>(m, "TensorBatch", "Where the elements of many arrays and tensors lie.",
                          collectable<TensorBatch>())
      .def(py::init<py::list, const TensorExchange*, py::object>(), py::arg("values"), py::arg("exchange"),
           py::arg("array_class"))
      .def("__len__", &TensorBatch::size)
      .def("others", &TensorBatch::others, "The numbers of the values that are left to Python.")
      .def("has_overlap", &TensorBatch::has_overlap, "Whether known values may share memory.")
      .def("same_as_earlier", &TensorBatch::same_as_earlier,
           "The numbers of tensors that are the same as an earlier one, to that one's.");

  const auto progress = py::arg("progress") = py::none();
  m.def(
      "load_tensors", &load_tensors, py::arg("reader"), py::arg("tensors"), py::arg("exchange"), py::arg("check"),
      py::arg("make"), py::kw_only(), py::arg("views"), progress,
      "Tensors of the exchange's library by name, in new memory or as copy-on-write views. Calls check(tensor) before "
      "anything is read, and then make(tensor, memory), for each that the exchange cannot make. The memory is None if "
      "there is no view.");
  m.def("fitting", &fitting, py::arg("reader"), py::arg("names"), py::arg("batch"),
        "The tensors by these names, if each can be read straight into its value of the batch; else None.");
  m.def("read_batch", &read_batch, py::arg("reader"), py::arg("tensors"), py::arg("batch"), progress,
        "Fills the values of a batch.");
}

}  // namespace weightstore::python
