#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "bindings.h"
#include "collectable.h"
#include "gil.h"
#include "io/file_source.h"
#include "objects/py_object.h"
#include "objects/py_progress.h"
#include "objects/py_source.h"
#include "pager/bound_pager.h"
#include "pager/paged_tensor.h"
#include "weightstore/pager.h"

namespace weightstore::python {

namespace {

using PagerClass = py::class_<BoundPager>;

// ---- making a pager -------------------------------------------------------------------------------------------------

// The keyword arguments that both constructors take. The Python package has checked them.
PagerOptions options_of(const py::kwargs& given) {
  const auto direct = py::cast<std::string>(given["direct"]);
  const auto policy = py::cast<std::string>(given["policy"]);
  PagerOptions options;
  options.budget = py::cast<std::uint64_t>(given["budget"]);
  options.strict = py::cast<bool>(given["strict"]);
  options.readers = py::cast<unsigned>(given["readers"]);
  options.zero_copy = py::cast<bool>(given["zero_copy"]);
  options.pinned = py::cast<std::vector<std::string>>(given["pinned"]);
  options.direct = direct == "always"  ? DirectReads::kAlways
                   : direct == "never" ? DirectReads::kNever
                                       : DirectReads::kAuto;
  options.policy = policy == "cyclic"     ? EvictionPolicy::kCyclic
                   : policy == "schedule" ? EvictionPolicy::kSchedule
                                          : EvictionPolicy::kLru;
  options.schedule = py::cast<std::vector<std::string>>(given["schedule"]);
  options.follow_memory = py::cast<bool>(given["follow"]);
  options.window = py::cast<std::uint64_t>(given["window"]);
  return options;
}

std::unique_ptr<BoundPager> page_reader(py::object reader, py::object handle_type, const PagerOptions& options) {
  return with_pager_errors([&] {
    auto pager = std::make_unique<Pager>(py::cast<const Reader&>(reader), options);
    return std::make_unique<BoundPager>(std::move(pager), std::move(handle_type), std::move(reader));
  });
}

// `end` is where the last tensor ends: a callable has no size of its own.
std::shared_ptr<const ByteSource> open_raw_source(const py::object& source, std::uint64_t end, bool mapped) {
  if (py::isinstance<py::str>(source) || py::hasattr(source, "__fspath__")) {
    const auto path = to_path(source);
    ReleaseGil nogil;
    return io::open_file(path, mapped, io::system_file_ops());
  }
  if (py::hasattr(source, "_total_size_bytes")) {
    return callable_source(source, py::cast<std::uint64_t>(source.attr("_total_size_bytes")));
  }
  if (py::hasattr(source, "readinto") && py::hasattr(source, "seek")) return file_object_source(source);
  if (PyCallable_Check(source.ptr()) != 0) return callable_source(source, end);
  return buffer_source(source);
}

using Entries = std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t>>;

std::unique_ptr<BoundPager> page_raw(const py::object& source, const Entries& map, py::object handle_type,
                                     const PagerOptions& options, bool mapped) {
  return with_pager_errors([&] {
    std::vector<NamedEntry> entries;
    std::uint64_t end = 0;
    for (const auto& [name, offset, size] : map) {
      entries.push_back({name, {offset, size}});
      std::uint64_t last = 0;
      if (!__builtin_add_overflow(offset, size, &last)) end = std::max(end, last);
    }
    const auto opened = open_raw_source(source, end, mapped);
    return std::make_unique<BoundPager>(std::make_unique<Pager>(opened, entries, options), std::move(handle_type),
                                        opened);
  });
}

void bind_constructors(PagerClass& cls) {
  cls.def(py::init([](py::object reader, py::object handle_type, const py::kwargs& options) {
            return page_reader(std::move(reader), std::move(handle_type), options_of(options));
          }),
          py::arg("reader"), py::arg("handle_type"));
  cls.def(
      py::init([](const py::object& source, const Entries& entries, py::object handle_type, const py::kwargs& options) {
        return page_raw(source, entries, std::move(handle_type), options_of(options),
                        py::cast<bool>(options["mapped"]));
      }),
      py::arg("source"), py::arg("entries"), py::arg("handle_type"));
}

// ---- acquiring ------------------------------------------------------------------------------------------------------

py::object make_handle(const BoundPager& self, ResidentTensor tensor, const py::handle& owner) {
  auto* type = reinterpret_cast<PyTypeObject*>(self.handle_type.ptr());
  PyObject* object = new_paged_tensor(type, std::move(tensor), owner.ptr());
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

py::object acquire_or_load(const py::object& self, const py::object& id, const py::object& timeout) {
  auto& bound = py::cast<BoundPager&>(self);
  const std::size_t slot = slot_of(bound, id);
  const auto wait = wait_of(timeout);
  const Progress signals = make_progress(py::none());
  ResidentTensor tensor = with_pager_errors([&] {
    ReleaseGil nogil;
    return bound.pager->acquire(slot, wait, signals);
  });
  return make_handle(bound, std::move(tensor), self);
}

py::list acquire_many(const py::object& self, const py::object& ids, const py::object& timeout) {
  auto& bound = py::cast<BoundPager&>(self);
  const auto slots = slots_of(bound, ids);
  const auto wait = wait_of(timeout);
  const Progress signals = make_progress(py::none());
  auto tensors = with_pager_errors([&] {
    ReleaseGil nogil;
    return bound.pager->acquire_many(slots, wait, signals);
  });
  py::list result;
  for (ResidentTensor& tensor : tensors) result.append(make_handle(bound, std::move(tensor), self));
  return result;
}

void prefetch(const BoundPager& self, const py::object& ids, bool wait) {
  const auto slots = slots_of(self, ids);
  const Progress signals = make_progress(py::none());
  with_pager_errors([&] {
    ReleaseGil nogil;
    self.pager->prefetch(slots);
    if (wait) self.pager->finish_prefetch(signals);
  });
}

// The fast path of acquire(): a handle for a resident tensor. Null without a Python error when the tensor is not
// resident.
PyObject* acquire_resident(const BoundPager& bound, PyObject* self, PyObject* id) {
  if (!PyLong_CheckExact(id) && !PyUnicode_CheckExact(id)) return nullptr;
  const auto slot = find_slot(bound, id);
  if (!slot) return nullptr;
  ResidentTensor tensor = bound.pager->try_acquire(*slot);
  if (!tensor) return nullptr;
  return new_paged_tensor(reinterpret_cast<PyTypeObject*>(bound.handle_type.ptr()), std::move(tensor), self);
}

// acquire(id, *, timeout=None), written against Python's own interface: a hit takes less time than pybind11 needs for a
// call. Everything else goes through the bound method _acquire().
PyObject* acquire(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  const auto* bound = made_object<const BoundPager>(self);  // without the search that py::cast makes
  if (bound == nullptr) {
    PyErr_SetString(PyExc_TypeError, "Pager.__init__() was not called");
    return nullptr;
  }
  if (count == 1 && names == nullptr) {
    PyObject* tensor = acquire_resident(*bound, self, args[0]);
    if (tensor != nullptr || PyErr_Occurred() != nullptr) return tensor;
  }
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  const bool has_timeout = named == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "timeout") == 0;
  if (count != 1 || (named > 0 && !has_timeout)) {
    PyErr_SetString(PyExc_TypeError, "acquire() takes one name or slot, and the keyword argument timeout");
    return nullptr;
  }
  static PyObject* const slow = PyUnicode_InternFromString("_acquire");
  return PyObject_CallMethodObjArgs(self, slow, args[0], has_timeout ? args[1] : Py_None, nullptr);
}

PyMethodDef acquire_method = {
    "acquire", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(acquire)), METH_FASTCALL | METH_KEYWORDS,
    "acquire(id, *, timeout=None)\n--\n\nA tensor by name or slot. The pager reads it unless it is resident."};

void bind_acquiring(PagerClass& cls) {
  cls.def("_acquire", &acquire_or_load);
  cls.def("_acquire_many", &acquire_many);
  cls.def("_prefetch", &prefetch);
  PyObject* method = PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(cls.ptr()), &acquire_method);
  if (method == nullptr) throw py::error_already_set();
  cls.attr("acquire") = py::reinterpret_steal<py::object>(method);
}

// ---- looking and evicting -------------------------------------------------------------------------------------------

py::tuple describe_slot(const BoundPager& self, const py::object& id) {
  const TensorTable& table = self.pager->table();
  const std::size_t slot = slot_of(self, id);
  if (self.is_raw()) return py::make_tuple(to_str(table.name(slot)), py::none(), py::none());
  const Shape shape = table.shape(slot);
  py::tuple dims(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) dims[i] = py::int_(shape[i]);
  return py::make_tuple(to_str(table.name(slot)), to_str(name_of(table.dtype(slot))), dims);
}

bool contains(const BoundPager& self, const py::object& id) {
  return (PyLong_Check(id.ptr()) != 0 || PyUnicode_Check(id.ptr()) != 0) && find_slot(self, id).has_value();
}

void bind_tensors(PagerClass& cls) {
  cls.def("__len__", [](const BoundPager& self) { return self.pager->table().size(); });
  cls.def("__contains__", &contains);
  cls.def("slot", &slot_of, py::arg("id"));
  cls.def("describe", &describe_slot, py::arg("id"),
          "(name, dtype, shape); dtype and shape are None over a raw source.");
  cls.def("is_resident", [](const BoundPager& self, const py::object& id) {
    const auto slot = find_slot(self, id);
    return slot && self.pager->is_resident(*slot);
  });
  cls.def("is_pinned", [](const BoundPager& self, const py::object& id) {
    const auto slot = find_slot(self, id);
    return slot && self.pager->is_pinned(*slot);
  });
}

void bind_eviction(PagerClass& cls) {
  const auto nogil = py::call_guard<ReleaseGil>();
  cls.def("pin", [](const BoundPager& self, const py::object& id) { self.pager->pin(slot_of(self, id)); });
  cls.def("unpin", [](const BoundPager& self, const py::object& id) {
    const std::size_t slot = slot_of(self, id);
    with_pager_errors([&] { self.pager->unpin(slot); });
  });
  cls.def("evict", [](const BoundPager& self, const py::object& id) {
    const std::size_t slot = slot_of(self, id);
    ReleaseGil released;
    return self.pager->evict(slot);
  });
  cls.def(
      "clear", [](const BoundPager& self) { return self.pager->clear(); }, nogil,
      "Evicts all tensors that are not pinned; returns how many.");
  cls.def(
      "_set_budget",
      [](const BoundPager& self, std::uint64_t bytes, bool follow) { self.pager->set_budget(bytes, follow); }, nogil);
  cls.def(
      "close", [](const BoundPager& self) { self.pager->close(); }, nogil,
      "Evicts everything. Acquired tensors, and arrays made from them, stay valid.");
}

// ---- statistics -----------------------------------------------------------------------------------------------------

py::dict stats_dict(const PagerStats& stats) {
  py::dict dict;
#define WEIGHTSTORE_STAT(name) dict[#name] = stats.name
  WEIGHTSTORE_STAT(hits);
  WEIGHTSTORE_STAT(misses);
  WEIGHTSTORE_STAT(coalesced_waits);
  WEIGHTSTORE_STAT(resurrected);
  WEIGHTSTORE_STAT(errors);
  WEIGHTSTORE_STAT(loads);
  WEIGHTSTORE_STAT(load_errors);
  WEIGHTSTORE_STAT(evictions);
  WEIGHTSTORE_STAT(bytes_read);
  WEIGHTSTORE_STAT(bytes_evicted);
  WEIGHTSTORE_STAT(prefetch_issued);
  WEIGHTSTORE_STAT(prefetch_used);
  WEIGHTSTORE_STAT(prefetch_late);
  WEIGHTSTORE_STAT(prefetch_wasted);
  WEIGHTSTORE_STAT(prefetch_skipped);
  WEIGHTSTORE_STAT(wait_ns);
  WEIGHTSTORE_STAT(load_ns);
  WEIGHTSTORE_STAT(checksum_ns);
  WEIGHTSTORE_STAT(over_budget_events);
  WEIGHTSTORE_STAT(peak_live_bytes);
  WEIGHTSTORE_STAT(pass_count);
#undef WEIGHTSTORE_STAT
  return dict;
}

void bind_statistics(PagerClass& cls) {
  cls.def_property_readonly("resident_bytes", [](const BoundPager& self) { return self.pager->resident_bytes(); });
  cls.def_property_readonly("resident_count", [](const BoundPager& self) { return self.pager->resident_count(); });
  cls.def_property_readonly("_budget", [](const BoundPager& self) { return self.pager->budget_bytes(); });
  cls.def_property_readonly("live_bytes", [](const BoundPager& self) { return self.pager->live_bytes(); });
  cls.def_property_readonly("over_budget_bytes",
                            [](const BoundPager& self) { return self.pager->over_budget_bytes(); });
  cls.def_property_readonly("reads_directly", [](const BoundPager& self) { return self.pager->reads_directly(); });
  cls.def_property_readonly("policy_state", [](const BoundPager& self) { return self.pager->policy_state(); });
  cls.def("_stats", [](const BoundPager& self, const py::object& id) {
    return stats_dict(id.is_none() ? self.pager->stats() : self.pager->stats(slot_of(self, id)));
  });
  cls.def("reset_stats", [](const BoundPager& self) { self.pager->reset_stats(); });
}

}  // namespace

void init_pager(py::module_& m) {
  m.attr("PagedTensor") = make_paged_tensor_type();
  m.attr("UNLIMITED") = kUnlimited;
  m.def("automatic_budget", &automatic_budget, "The available memory in bytes, minus a reserve.");

  PagerClass cls(m, "Pager", "Tensors in memory, within a budget. Tensors go by name or by slot.",
                 collectable<BoundPager>());
  bind_constructors(cls);
  bind_acquiring(cls);
  bind_tensors(cls);
  bind_eviction(cls);
  bind_statistics(cls);
}

}  // namespace weightstore::python
