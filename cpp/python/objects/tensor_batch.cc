#include "objects/tensor_batch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace weightstore::python {

namespace {

constexpr std::size_t kMostDimensions = 16;  // of a tensor that is not left to Python

// The first byte and the end of what the elements of an array touch. Strides may be negative.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;
};

// The type with a format of the buffer protocol, in the byte order of the machine.
std::optional<DType> dtype_of_format(std::string_view format, Py_ssize_t item_bytes) {
  if (format == "Zf") return DType::kC64;
  if (format.size() != 1) return std::nullopt;
  const auto sized = [&](std::array<DType, 4> types) -> std::optional<DType> {
    switch (item_bytes) {
      case 1:
        return types[0];
      case 2:
        return types[1];
      case 4:
        return types[2];
      case 8:
        return types[3];
      default:
        return std::nullopt;
    }
  };
  switch (format[0]) {
    case '?':
      return DType::kBool;
    case 'e':
      return DType::kF16;
    case 'f':
      return DType::kF32;
    case 'd':
      return DType::kF64;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
      return sized({DType::kI8, DType::kI16, DType::kI32, DType::kI64});
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
      return sized({DType::kU8, DType::kU16, DType::kU32, DType::kU64});
    default:
      return std::nullopt;
  }
}

class Buffer {
 public:
  explicit Buffer(PyObject* object) : is_held_(PyObject_GetBuffer(object, &view, PyBUF_STRIDES | PyBUF_FORMAT) == 0) {
    if (!is_held_) PyErr_Clear();
  }
  ~Buffer() {
    if (is_held_) PyBuffer_Release(&view);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  explicit operator bool() const { return is_held_; }
  Py_buffer view{};

 private:
  const bool is_held_;
};

}  // namespace

TensorBatch::TensorBatch(py::list values, const TensorExchange* exchange, py::handle array_class)
    : values_(std::move(values)) {
  const std::size_t count = values_.size();
  known_.reserve(count);
  dims_.reserve(4 * count);
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* value = PyList_GET_ITEM(values_.ptr(), static_cast<Py_ssize_t>(i));
    const bool is_array = reinterpret_cast<PyObject*>(Py_TYPE(value)) == array_class.ptr();
    const bool is_known = is_array ? look_at_array(value) : exchange != nullptr && look_at_tensor(value, *exchange);
    if (is_known) {
      kept_.append(py::handle(value));
    } else {
      known_.emplace_back();
    }
  }
}

bool TensorBatch::look_at_tensor(PyObject* value, const TensorExchange& exchange) {
  dlpack::Tensor tensor;
  py::object storage;
  if (!exchange.look_at(value, tensor, storage)) return false;
  const auto dtype = dtype_of(tensor.dtype);
  if (!dtype) return false;
  const auto rank = static_cast<std::size_t>(tensor.ndim);
  KnownArray array{};
  array.data = static_cast<std::byte*>(tensor.data);
  array.dtype = *dtype;
  array.is_torch = true;
  array.is_writable = true;
  std::array<std::int64_t, kMostDimensions> strides;
  if (rank > strides.size()) return false;
  const std::int64_t item_bytes = tensor.dtype.bits / 8;
  for (std::size_t i = 0; i < rank; ++i) strides[i] = tensor.strides[i] * item_bytes;
  add(array, {tensor.shape, rank}, {strides.data(), rank});
  if (storage) kept_.append(std::move(storage));
  return true;
}

bool TensorBatch::look_at_array(PyObject* value) {
  const Buffer buffer(value);
  if (!buffer) return false;
  const Py_buffer& view = buffer.view;
  const auto dtype = dtype_of_format(view.format == nullptr ? "B" : view.format, view.itemsize);
  if (!dtype) return false;
  KnownArray array{};
  array.data = static_cast<std::byte*>(view.buf);
  array.dtype = *dtype;
  array.is_writable = view.readonly == 0;
  const auto rank = static_cast<std::size_t>(view.ndim);
  static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
  const auto* sizes = reinterpret_cast<const std::int64_t*>(view.shape);
  const auto* strides = reinterpret_cast<const std::int64_t*>(view.strides);
  add(array, {sizes, rank}, {strides, rank});
  return true;
}

void TensorBatch::add(KnownArray array, std::span<const std::int64_t> sizes,
                      std::span<const std::int64_t> byte_strides) {
  const std::int64_t item_bytes = bits_of(array.dtype) / 8;
  std::int64_t step = item_bytes;
  array.is_row_major = true;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    array.is_row_major &= sizes[i] == 1 || byte_strides[i] == step;
    step *= sizes[i];
  }
  array.is_row_major |= step == 0;
  array.nbytes = static_cast<std::uint64_t>(step);
  array.rank = static_cast<std::uint32_t>(sizes.size());
  array.first_dim = dims_.size();
  dims_.insert(dims_.end(), sizes.begin(), sizes.end());
  dims_.insert(dims_.end(), byte_strides.begin(), byte_strides.end());
  known_.emplace_back(array);
}

std::span<const std::int64_t> TensorBatch::sizes(const KnownArray& array) const {
  return std::span(dims_).subspan(array.first_dim, array.rank);
}

std::span<const std::int64_t> TensorBatch::byte_strides(const KnownArray& array) const {
  return std::span(dims_).subspan(array.first_dim + array.rank, array.rank);
}

std::vector<std::size_t> TensorBatch::others() const {
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < known_.size(); ++i) {
    if (!known_[i]) numbers.push_back(i);
  }
  return numbers;
}

bool TensorBatch::has_overlap() const {
  std::vector<Extent> extents;
  extents.reserve(known_.size());
  for (const auto& array : known_) {
    if (!array || array->nbytes == 0) continue;
    Extent extent{reinterpret_cast<std::uintptr_t>(array->data), 0};
    extent.end = extent.begin + array->nbytes;
    if (!array->is_row_major) {
      extent.end = extent.begin + bits_of(array->dtype) / 8;
      for (std::size_t i = 0; i < array->rank; ++i) {
        const std::int64_t reach = (sizes(*array)[i] - 1) * byte_strides(*array)[i];
        (reach < 0 ? extent.begin : extent.end) += static_cast<std::uintptr_t>(reach);
      }
    }
    extents.push_back(extent);
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  // The first pair that overlaps is a pair of neighbours.
  return std::adjacent_find(extents.begin(), extents.end(),
                            [](const Extent& a, const Extent& b) { return b.begin < a.end; }) != extents.end();
}

py::dict TensorBatch::same_as_earlier() const {
  py::dict found;
  std::unordered_multimap<const void*, std::size_t> first;
  first.reserve(known_.size());
  for (std::size_t i = 0; i < known_.size(); ++i) {
    const KnownArray* array = known(i);
    if (array == nullptr || !array->is_torch) continue;
    const PyObject* value = PyList_GET_ITEM(values_.ptr(), static_cast<Py_ssize_t>(i));
    const void* key = array->nbytes == 0 ? static_cast<const void*>(value) : array->data;
    const auto is_same = [&](const auto& entry) {
      const KnownArray& other = *known(entry.second);
      if (array->nbytes == 0 || other.nbytes == 0) return array->nbytes == other.nbytes;
      return array->dtype == other.dtype && std::ranges::equal(sizes(*array), sizes(other)) &&
             std::ranges::equal(byte_strides(*array), byte_strides(other));
    };
    const auto [begin, end] = first.equal_range(key);
    const auto earlier = std::find_if(begin, end, is_same);
    if (earlier == end) {
      first.emplace(key, i);
    } else {
      found[py::int_(i)] = py::int_(earlier->second);
    }
  }
  return found;
}

void TensorBatch::visit(Visitor& visitor) const {
  visitor(values_.ptr());
  visitor(kept_.ptr());
}

}  // namespace weightstore::python
