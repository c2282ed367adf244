#include "pager/bound_pager.h"

#include <algorithm>
#include <string>
#include <utility>

#include "gil.h"
#include "pager/paged_tensor.h"

namespace weightstore::python {

BoundPager::BoundPager(std::unique_ptr<Pager> made, py::object type, py::object from)
    : pager(std::move(made)), fork_guard(std::in_place, *pager), handle_type(std::move(type)), reader(std::move(from)) {
  prepare_handle_type(reinterpret_cast<PyTypeObject*>(handle_type.ptr()));
}

BoundPager::BoundPager(std::unique_ptr<Pager> made, py::object type, std::shared_ptr<const ByteSource> source)
    : pager(std::move(made)),
      fork_guard(std::in_place, *pager),
      handle_type(std::move(type)),
      raw_source(std::move(source)) {
  prepare_handle_type(reinterpret_cast<PyTypeObject*>(handle_type.ptr()));
}

BoundPager::~BoundPager() {
  const ReleaseGil nogil;
  fork_guard.reset();
  pager.reset();
}

void BoundPager::visit(Visitor& visitor) const {
  visitor(handle_type.ptr());
  visitor(reader.ptr());
  if (const auto* keeps = dynamic_cast<const KeepsObjects*>(raw_source.get())) keeps->visit(visitor);
}

std::optional<std::size_t> find_slot(const BoundPager& self, const py::handle& id) {
  const TensorTable& table = self.pager->table();
  if (PyLong_Check(id.ptr()) != 0) {
    const Py_ssize_t slot = PyLong_AsSsize_t(id.ptr());
    if (slot == -1 && PyErr_Occurred() != nullptr) PyErr_Clear();
    if (slot < 0 || static_cast<std::size_t>(slot) >= table.size()) return std::nullopt;
    return static_cast<std::size_t>(slot);
  }
  if (PyUnicode_Check(id.ptr()) == 0 && PyIndex_Check(id.ptr()) != 0) {
    const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(id.ptr()));
    if (!number) throw py::error_already_set();
    return find_slot(self, number);
  }
  if (PyUnicode_Check(id.ptr()) == 0) {
    throw py::type_error(std::string("give the name or the slot of a tensor, not a ") + Py_TYPE(id.ptr())->tp_name);
  }
  Py_ssize_t length = 0;
  const char* data = PyUnicode_AsUTF8AndSize(id.ptr(), &length);
  if (data == nullptr) {
    PyErr_Clear();  // lone surrogates: no tensor has such a name
    return std::nullopt;
  }
  return table.find({data, static_cast<std::size_t>(length)});
}

std::size_t slot_of(const BoundPager& self, const py::handle& id) {
  if (const auto slot = find_slot(self, id)) return *slot;
  return with_pager_errors([&]() -> std::size_t {
    if (PyUnicode_Check(id.ptr()) != 0) {
      return self.pager->slot(py::cast<std::string>(id.attr("encode")("utf-8", "replace")));
    }
    throw Error(ErrorCode::kNotFound, "there is no slot " + py::cast<std::string>(py::str(id)) + "; the pager has " +
                                          std::to_string(self.pager->table().size()) + " tensors");
  });
}

std::vector<std::size_t> slots_of(const BoundPager& self, const py::object& ids) {
  std::vector<std::size_t> slots;
  for (const py::handle id : ids) slots.push_back(slot_of(self, id));
  return slots;
}

std::optional<std::chrono::milliseconds> wait_of(const py::object& timeout) {
  if (timeout.is_none()) return std::nullopt;
  constexpr double kYear = 366.0 * 24 * 3600;
  const double seconds = PyFloat_AsDouble(timeout.ptr());
  if (seconds == -1.0 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw py::type_error(std::string("timeout must be a number of seconds or None, not ") +
                         Py_TYPE(timeout.ptr())->tp_name);
  }
  if (!(seconds >= 0)) throw py::value_error("timeout must be a number of seconds that is not less than 0");
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(seconds, kYear) * 1000));
}

}  // namespace weightstore::python
