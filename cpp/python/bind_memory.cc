#include <new>

#include "bindings.h"
#include "collectable.h"
#include "io/available_memory.h"
#include "io/huge_buffer.h"
#include "io/recycled_memory.h"
#include "memory.h"

namespace weightstore::python {

namespace {

constexpr std::size_t kAlignment = 64;
// Below this a mapping of its own costs more than the page faults it saves.
constexpr std::size_t kBulkBytes = 1u << 20;

// Consumers of an empty buffer still want an address.
alignas(kAlignment) std::byte empty_place[kAlignment];

}  // namespace

Memory::Memory(SharedBytes view)
    : data_(view.bytes.empty() ? empty_place : const_cast<std::byte*>(view.bytes.data())),
      size_(view.bytes.size()),
      read_only_(true),
      owner_(std::move(view.owner)) {}

Memory::Memory(SharedMutableBytes view)
    : data_(view.bytes.empty() ? empty_place : view.bytes.data()),
      size_(view.bytes.size()),
      read_only_(false),
      owner_(std::move(view.owner)) {}

Memory allocate_memory(std::size_t size) {
  io::require_memory(size);
  if (size >= kBulkBytes) return Memory(io::allocate_bulk(size));
  auto* data = static_cast<std::byte*>(::operator new(size == 0 ? 1 : size, std::align_val_t{kAlignment}));
  std::shared_ptr<void> owner(data, [](void* p) { ::operator delete(p, std::align_val_t{kAlignment}); });
  return Memory(SharedMutableBytes{MutableBytes(data, size), std::move(owner)});
}

Memory allocate_result(std::size_t size) {
  return size >= io::kLeastRecycled ? Memory(io::allocate_recycled(size)) : allocate_memory(size);
}

void init_memory(py::module_& m) {
  py::class_<Memory>(m, "Memory", py::buffer_protocol(), "Bytes that keep their owner alive.", only_from_functions())
      .def_buffer([](Memory& memory) {
        return py::buffer_info(memory.data(), 1, "B", 1, {static_cast<py::ssize_t>(memory.size())}, {py::ssize_t{1}},
                               memory.read_only());
      })
      .def_property_readonly("address",
                             [](const Memory& memory) { return reinterpret_cast<std::uintptr_t>(memory.data()); })
      .def_property_readonly("readonly", &Memory::read_only)
      .def("__len__", &Memory::size);
  m.def("allocate", &allocate_memory, py::arg("size"));
}

}  // namespace weightstore::python
