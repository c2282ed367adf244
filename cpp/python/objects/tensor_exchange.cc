#include "objects/tensor_exchange.h"

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <utility>

#include "weightstore/error.h"

namespace weightstore::python {

namespace {

constexpr std::uint8_t kComplex = 5;

struct Pair {
  DType dtype;
  dlpack::DataType type;
  bool written;  // files are also written with this type
};

constexpr std::array kTypes = {
    Pair{DType::kI8, {0, 8, 1}, true},
    Pair{DType::kI16, {0, 16, 1}, true},
    Pair{DType::kI32, {0, 32, 1}, true},
    Pair{DType::kI64, {0, 64, 1}, true},
    Pair{DType::kU8, {1, 8, 1}, true},
    Pair{DType::kU16, {1, 16, 1}, true},
    Pair{DType::kU32, {1, 32, 1}, true},
    Pair{DType::kU64, {1, 64, 1}, true},
    Pair{DType::kF16, {2, 16, 1}, true},
    Pair{DType::kF32, {2, 32, 1}, true},
    Pair{DType::kFlex32, {2, 32, 1}, false},
    Pair{DType::kF64, {2, 64, 1}, true},
    Pair{DType::kBF16, {4, 16, 1}, true},
    Pair{DType::kC64, {kComplex, 64, 1}, true},
    Pair{DType::kC128, {kComplex, 128, 1}, false},
    Pair{DType::kBool, {6, 8, 1}, true},
    Pair{DType::kBoolU8, {6, 8, 1}, false},
    Pair{DType::kF8_E4M3, {10, 8, 1}, true},
    Pair{DType::kF8_E4M3FNUZ, {11, 8, 1}, true},
    Pair{DType::kF8_E5M2, {12, 8, 1}, true},
    Pair{DType::kF8_E5M2FNUZ, {13, 8, 1}, true},
    Pair{DType::kF8_E8M0, {14, 8, 1}, true},
};

bool is_same(dlpack::DataType a, dlpack::DataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

py::str interned(const char* text) {
  PyObject* made = PyUnicode_InternFromString(text);
  if (made == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(made);
}

// The result of a method without arguments; null, with no error set, when it raises.
py::object call(PyObject* object, const py::str& method) {
  PyObject* result = PyObject_CallMethodNoArgs(object, method.ptr());
  if (result == nullptr) PyErr_Clear();
  return py::reinterpret_steal<py::object>(result);
}

// An address or a size that a method returns; 0 when it raises.
std::uint64_t number(PyObject* object, const py::str& method) {
  const py::object result = call(object, method);
  if (!result) return 0;
  const unsigned long long found = PyLong_AsUnsignedLongLong(result.ptr());
  if (PyErr_Occurred() == nullptr) return found;
  PyErr_Clear();
  return 0;
}

// Bytes from the first element of a tensor to the end of the last; torch's strides are not negative.
std::uint64_t span_of(const dlpack::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) return 0;
    last += (tensor.shape[i] - 1) * tensor.strides[i];
  }
  return static_cast<std::uint64_t>(last + 1) * tensor.dtype.bits * tensor.dtype.lanes / 8;
}

// A managed tensor, its sizes and strides, and the memory that it keeps. Lives until the consumer calls the deleter,
// from any thread.
struct Made {
  dlpack::ManagedTensorVersioned managed{};
  SharedMutableBytes memory;

  static Made* make(std::size_t rank) {
    void* place = ::operator new(sizeof(Made) + 2 * rank * sizeof(std::int64_t));
    return new (place) Made;
  }
  std::int64_t* dims() { return reinterpret_cast<std::int64_t*>(this + 1); }

  static void destroy(dlpack::ManagedTensorVersioned* managed) {
    auto* made = static_cast<Made*>(managed->context);
    made->~Made();
    ::operator delete(made);
  }
};
static_assert(alignof(Made) >= alignof(std::int64_t) && sizeof(Made) % alignof(std::int64_t) == 0);

}  // namespace

std::optional<dlpack::DataType> dlpack_type(DType dtype) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const Pair& pair) { return pair.dtype == dtype; });
  return found == kTypes.end() ? std::nullopt : std::optional(found->type);
}

std::optional<DType> dtype_of(dlpack::DataType type) {
  const auto found = std::find_if(kTypes.begin(), kTypes.end(),
                                  [&](const Pair& pair) { return pair.written && is_same(pair.type, type); });
  return found == kTypes.end() ? std::nullopt : std::optional(found->dtype);
}

TensorExchange::TensorExchange(const py::object& capsule, py::tuple classes)
    : classes_(std::move(classes)),
      is_neg_(interned("is_neg")),
      is_conj_(interned("is_conj")),
      untyped_storage_(interned("untyped_storage")),
      nbytes_(interned("nbytes")),
      data_ptr_(interned("data_ptr")) {
  auto* header = static_cast<dlpack::ExchangeHeader*>(PyCapsule_GetPointer(capsule.ptr(), dlpack::kExchangeCapsule));
  if (header == nullptr) {
    PyErr_Clear();
    throw py::type_error("not a capsule of DLPack's exchange API");
  }
  while (header != nullptr && header->version.major != 1) header = header->previous;
  api_ = reinterpret_cast<const dlpack::ExchangeApi*>(header);
  if (api_ == nullptr || api_->look_at == nullptr || api_->make_object == nullptr) {
    throw Error(ErrorCode::kUnsupported, "the library has no DLPack exchange API of version 1 that looks at tensors");
  }
}

bool TensorExchange::look_at(PyObject* object, dlpack::Tensor& out, py::object& storage) const {
  const auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  bool is_known = false;
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    is_known |= PyTuple_GET_ITEM(classes_.ptr(), static_cast<Py_ssize_t>(i)) == type;
  }
  if (!is_known) return false;
  // A sparse, quantized or meta tensor, or one without storage, is an error here.
  if (api_->look_at(object, &out) != 0) {
    PyErr_Clear();
    return false;
  }
  if (out.device.type != dlpack::kCpu || (out.ndim > 0 && out.strides == nullptr)) return false;
  const auto is_pending = [&](const py::str& method) {
    const py::object result = call(object, method);
    return !result || result.ptr() != Py_False;
  };
  if (is_pending(is_neg_)) return false;
  if (out.dtype.code == kComplex && is_pending(is_conj_)) return false;
  out.data = static_cast<std::byte*>(out.data) + out.byte_offset;
  out.byte_offset = 0;
  const std::uint64_t span = span_of(out);
  if (span == 0) return true;
  storage = call(object, untyped_storage_);
  return storage && lies_in(storage, out, span);
}

// Not so if the storage was freed or made smaller.
bool TensorExchange::lies_in(const py::object& storage, const dlpack::Tensor& tensor, std::uint64_t span) const {
  const std::uint64_t begin = number(storage.ptr(), data_ptr_);
  const std::uint64_t available = number(storage.ptr(), nbytes_);
  const auto data = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(tensor.data));
  return begin != 0 && data >= begin && span <= available && data - begin <= available - span;
}

py::object TensorExchange::make(SharedMutableBytes memory, dlpack::DataType type,
                                std::span<const std::uint64_t> shape) const {
  Made* made = Made::make(shape.size());
  std::int64_t* sizes = made->dims();
  std::int64_t* strides = sizes + shape.size();
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    sizes[i] = static_cast<std::int64_t>(shape[i]);
    strides[i] = step;
    step *= sizes[i];
  }
  made->memory = std::move(memory);
  dlpack::ManagedTensorVersioned& managed = made->managed;
  managed.version = {1, 1};
  managed.context = made;
  managed.deleter = &Made::destroy;
  managed.tensor = {
      made->memory.bytes.data(), {dlpack::kCpu, 0}, static_cast<std::int32_t>(shape.size()), type, sizes, strides, 0};
  void* object = nullptr;
  // The function takes `managed` over, also when it fails.
  if (api_->make_object(&managed, &object) != 0) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(static_cast<PyObject*>(object));
}

}  // namespace weightstore::python
