#include <pybind11/stl.h>

#include <memory>
#include <vector>

#include "bindings.h"
#include "dlpack.h"
#include "memory.h"

namespace weightstore::python {

namespace {

// A managed tensor and what it points to. Lives until the consumer calls the deleter, from any thread, or until the
// capsule dies unused.
template <class Managed>
struct Export {
  Managed managed{};
  Memory memory;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;

  static constexpr bool kVersioned = std::is_same_v<Managed, dlpack::ManagedTensorVersioned>;
  static constexpr const char* kName = kVersioned ? "dltensor_versioned" : "dltensor";

  explicit Export(Memory m) : memory(std::move(m)) {}

  static void destroy(Managed* managed) { delete static_cast<Export*>(managed->context); }

  static void destroy_capsule(PyObject* capsule) {
    if (!PyCapsule_IsValid(capsule, kName)) return;  // consumed: renamed, and the consumer's to delete
    auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, kName));
    managed->deleter(managed);
  }
};

struct Request {
  Memory memory;
  std::uint64_t offset;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  dlpack::DataType dtype;
  std::uint64_t flags;
};

template <class Managed>
py::object make_capsule(Request request) {
  using Made = Export<Managed>;
  auto made = std::make_unique<Made>(request.memory);
  made->shape = std::move(request.shape);
  made->strides = std::move(request.strides);
  Managed& managed = made->managed;
  // Consumers before version 1 look at `data` alone, so the offset goes into the pointer.
  managed.tensor = {made->memory.data() + request.offset,
                    {dlpack::kCpu, 0},
                    static_cast<std::int32_t>(made->shape.size()),
                    request.dtype,
                    made->shape.data(),
                    made->strides.data(),
                    0};
  managed.context = made.get();
  managed.deleter = &Made::destroy;
  if constexpr (Made::kVersioned) {
    managed.version = {1, 1};
    managed.flags = request.flags;
  }
  PyObject* capsule = PyCapsule_New(&managed, Made::kName, &Made::destroy_capsule);
  if (capsule == nullptr) throw py::error_already_set();
  made.release();
  return py::reinterpret_steal<py::object>(capsule);
}

}  // namespace

void init_dlpack(py::module_& m) {
  m.def(
      "dlpack",
      [](const Memory& memory, std::uint64_t offset, std::vector<std::int64_t> shape, std::vector<std::int64_t> strides,
         std::tuple<std::uint8_t, std::uint8_t, std::uint16_t> dtype, bool versioned, bool read_only, bool copied) {
        if (shape.size() != strides.size() || offset > memory.size())
          throw py::value_error("not a view of this memory");
        const auto [code, bits, lanes] = dtype;
        const std::uint64_t flags = (read_only ? dlpack::kReadOnly : 0) | (copied ? dlpack::kCopied : 0);
        Request request{memory, offset, std::move(shape), std::move(strides), {code, bits, lanes}, flags};
        return versioned ? make_capsule<dlpack::ManagedTensorVersioned>(std::move(request))
                         : make_capsule<dlpack::ManagedTensor>(std::move(request));
      },
      py::arg("memory"), py::arg("offset"), py::arg("shape"), py::arg("strides"), py::arg("dtype"), py::kw_only(),
      py::arg("versioned"), py::arg("read_only"), py::arg("copied"),
      "A DLPack capsule over memory; strides in elements, dtype as (code, bits, lanes).");
}

}  // namespace weightstore::python
