#include <pybind11/stl.h>

#include <algorithm>
#include <string>

#include "bindings.h"
#include "collectable.h"
#include "fork_guard.h"
#include "gil.h"
#include "io/file_source.h"
#include "paged_tensor.h"
#include "py_error.h"
#include "py_object.h"
#include "py_progress.h"
#include "py_source.h"
#include "weightstore/pager.h"

namespace weightstore::python {

namespace {

using Wait = std::optional<std::chrono::milliseconds>;

// An error of a pager is one about the pager, unless it is about a file of a known format.
template <class Work>
auto paging(Work work) {
  try {
    return work();
  } catch (const OffloadEof&) {
    throw;
  } catch (const BudgetExceeded&) {
    throw;
  } catch (const Error& error) {
    if (error.format() != Format::kUnknown) throw;
    throw ErrorOfPager(error);
  }
}

// A pager, and the type of the handles it gives out. Reader threads may want the GIL while they are waited for.
struct Paging {
  // `source` is what the pager reads: a Reader, as its Python object, or a source of its own.
  Paging(std::unique_ptr<Pager> made, py::object type, py::object reader)
      : pager(std::move(made)),
        fork_guard(std::in_place, *pager),
        handle_type(std::move(type)),
        read(std::move(reader)) {}
  Paging(std::unique_ptr<Pager> made, py::object type, std::shared_ptr<const ByteSource> source)
      : pager(std::move(made)),
        fork_guard(std::in_place, *pager),
        handle_type(std::move(type)),
        raw_source(std::move(source)) {}
  ~Paging() {
    const ReleaseGil nogil;
    fork_guard.reset();
    pager.reset();
  }

  void visit(Visitor& visitor) const {
    visitor(handle_type.ptr());
    visitor(read.ptr());
    if (const auto* keeps = dynamic_cast<const KeepsObjects*>(raw_source.get())) keeps->visit(visitor);
  }

  bool raw() const { return raw_source != nullptr; }

  std::unique_ptr<Pager> pager;
  std::optional<ForkGuard> fork_guard;
  const py::object handle_type;
  const py::object read;
  const std::shared_ptr<const ByteSource> raw_source;
};

PagerOptions options_of(std::uint64_t budget, bool strict, const std::string& direct, unsigned readers, bool zero_copy,
                        std::vector<std::string> pinned) {
  PagerOptions options;
  options.budget = budget;
  options.strict = strict;
  options.readers = readers;
  options.zero_copy = zero_copy;
  options.pinned = std::move(pinned);
  options.direct = direct == "always"  ? DirectReads::kAlways
                   : direct == "never" ? DirectReads::kNever
                                       : DirectReads::kAuto;
  return options;
}

std::shared_ptr<const ByteSource> raw_source(const py::object& source, std::uint64_t end) {
  if (py::isinstance<py::str>(source) || py::hasattr(source, "__fspath__")) {
    const auto path = to_path(source);
    ReleaseGil nogil;
    return io::open_file(path, false, io::system_file_ops());
  }
  if (py::hasattr(source, "readinto") && py::hasattr(source, "seek")) return file_object_source(source);
  if (PyCallable_Check(source.ptr()) != 0) return callable_source(source, end);
  return buffer_source(source);
}

using Entries = std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t>>;

std::unique_ptr<Paging> page_raw(const py::object& source, const Entries& map, py::object handle_type,
                                 const PagerOptions& options) {
  return paging([&] {
    std::vector<NamedEntry> entries;
    std::uint64_t end = 0;
    for (const auto& [name, offset, size] : map) {
      entries.push_back({name, {offset, size}});
      std::uint64_t last = 0;
      if (!__builtin_add_overflow(offset, size, &last)) end = std::max(end, last);
    }
    const auto opened = raw_source(source, end);
    return std::make_unique<Paging>(std::make_unique<Pager>(opened, entries, options), std::move(handle_type), opened);
  });
}

std::optional<std::size_t> find_slot(const Paging& self, const py::handle& id) {
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
    throw py::type_error(std::string("a tensor goes by its name or its slot, not by a ") + Py_TYPE(id.ptr())->tp_name);
  }
  Py_ssize_t length = 0;
  const char* data = PyUnicode_AsUTF8AndSize(id.ptr(), &length);
  if (data == nullptr) {
    PyErr_Clear();  // lone surrogates: no tensor has such a name
    return std::nullopt;
  }
  return table.find({data, static_cast<std::size_t>(length)});
}

std::size_t slot_of(const Paging& self, const py::handle& id) {
  if (const auto slot = find_slot(self, id)) return *slot;
  return paging([&]() -> std::size_t {
    if (PyUnicode_Check(id.ptr()) != 0) {
      return self.pager->slot(py::cast<std::string>(id.attr("encode")("utf-8", "replace")));
    }
    throw Error(ErrorCode::kNotFound, "there is no slot " + py::cast<std::string>(py::str(id)) + "; there are " +
                                          std::to_string(self.pager->table().size()));
  });
}

std::vector<std::size_t> slots_of(const Paging& self, const py::iterable& ids) {
  std::vector<std::size_t> slots;
  for (const py::handle id : ids) slots.push_back(slot_of(self, id));
  return slots;
}

Wait wait_of(const std::optional<double>& timeout) {
  if (!timeout) return std::nullopt;
  constexpr double kYear = 366.0 * 24 * 3600;
  if (!(*timeout >= 0)) throw py::value_error("timeout is a number of seconds, not less than 0");
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::min(*timeout, kYear) * 1000));
}

py::object wrap(const Paging& self, ResidentTensor tensor, const py::handle& owner) {
  auto* type = reinterpret_cast<PyTypeObject*>(self.handle_type.ptr());
  PyObject* object = new_paged_tensor(type, std::move(tensor), owner.ptr());
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

py::object acquire_slowly(const py::object& self, const py::object& id, const std::optional<double>& timeout) {
  auto& paged = py::cast<Paging&>(self);
  const std::size_t slot = slot_of(paged, id);
  const Wait wait = wait_of(timeout);
  const Progress signals = make_progress(py::none());
  ResidentTensor tensor = paging([&] {
    ReleaseGil nogil;
    return paged.pager->acquire(slot, wait, signals);
  });
  return wrap(paged, std::move(tensor), self);
}

// acquire(id, *, timeout=None). A resident tensor is given out here; everything else goes through pybind11.
PyObject* acquire(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  const Paging* paged = made_object<const Paging>(self);  // without the search that py::cast makes
  if (paged == nullptr) {
    PyErr_SetString(PyExc_TypeError, "Pager.__init__() was not called");
    return nullptr;
  }
  const bool fast = count == 1 && names == nullptr;
  if (fast && (PyLong_CheckExact(args[0]) || PyUnicode_CheckExact(args[0]))) {
    if (const auto slot = find_slot(*paged, args[0])) {
      if (ResidentTensor tensor = paged->pager->try_acquire(*slot)) {
        auto* type = reinterpret_cast<PyTypeObject*>(paged->handle_type.ptr());
        return new_paged_tensor(type, std::move(tensor), self);
      }
    }
  }
  static PyObject* const slow = PyUnicode_InternFromString("_acquire");
  PyObject* method = PyObject_GetAttr(self, slow);
  if (method == nullptr) return nullptr;
  PyObject* result = PyObject_Vectorcall(method, args, static_cast<std::size_t>(count), names);
  Py_DECREF(method);
  return result;
}

PyMethodDef acquire_method = {
    "acquire", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(acquire)), METH_FASTCALL | METH_KEYWORDS,
    "acquire(id, *, timeout=None)\n--\n\nA tensor by name or slot, read when it is not there."};

py::list acquire_many(const py::object& self, const py::iterable& ids, const std::optional<double>& timeout) {
  auto& paged = py::cast<Paging&>(self);
  const auto slots = slots_of(paged, ids);
  const Wait wait = wait_of(timeout);
  const Progress signals = make_progress(py::none());
  auto tensors = paging([&] {
    ReleaseGil nogil;
    return paged.pager->acquire_many(slots, wait, signals);
  });
  py::list result;
  for (ResidentTensor& tensor : tensors) result.append(wrap(paged, std::move(tensor), self));
  return result;
}

py::tuple describe(const Paging& self, std::size_t slot) {
  const TensorTable& table = self.pager->table();
  if (slot >= table.size()) throw py::index_error("no tensor has this slot");
  if (self.raw()) return py::make_tuple(to_str(table.name(slot)), py::none(), py::none());
  const Shape shape = table.shape(slot);
  py::tuple dims(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) dims[i] = py::int_(shape[i]);
  return py::make_tuple(to_str(table.name(slot)), to_str(name_of(table.dtype(slot))), dims);
}

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

}  // namespace

void init_pager(py::module_& m) {
  m.attr("PagedTensor") = make_paged_tensor_type();
  m.attr("UNLIMITED") = kUnlimited;
  m.def("automatic_budget", &automatic_budget, "Bytes that this process may still take, less a reserve.");

  const auto nogil = py::call_guard<ReleaseGil>();
  py::class_<Paging> cls(m, "Pager",
                         "A budget of memory over tensors. Slots are a Reader's numbers, or ranks by offset.",
                         collectable<Paging>());
  cls.def(py::init([](py::object reader, py::object handle_type, std::uint64_t budget, bool strict,
                      const std::string& direct, unsigned readers, bool zero_copy, std::vector<std::string> pinned) {
            const auto options = options_of(budget, strict, direct, readers, zero_copy, std::move(pinned));
            return paging([&] {
              auto pager = std::make_unique<Pager>(py::cast<const Reader&>(reader), options);
              return std::make_unique<Paging>(std::move(pager), std::move(handle_type), std::move(reader));
            });
          }),
          py::arg("reader"), py::arg("handle_type"), py::kw_only(), py::arg("budget"), py::arg("strict"),
          py::arg("direct"), py::arg("readers"), py::arg("zero_copy"), py::arg("pinned"))
      .def(py::init([](const py::object& source, const Entries& entries, py::object handle_type, std::uint64_t budget,
                       bool strict, const std::string& direct, unsigned readers, bool zero_copy,
                       std::vector<std::string> pinned) {
             return page_raw(source, entries, std::move(handle_type),
                             options_of(budget, strict, direct, readers, zero_copy, std::move(pinned)));
           }),
           py::arg("source"), py::arg("entries"), py::arg("handle_type"), py::kw_only(), py::arg("budget"),
           py::arg("strict"), py::arg("direct"), py::arg("readers"), py::arg("zero_copy"), py::arg("pinned"))
      .def("_acquire", &acquire_slowly, py::arg("id"), py::kw_only(), py::arg("timeout") = py::none())
      .def("acquire_many", &acquire_many, py::arg("ids"), py::kw_only(), py::arg("timeout") = py::none(),
           "Several at once, read at the same time, in this order.")
      .def("_prefetch",
           [](const Paging& self, const py::iterable& ids, bool wait) {
             const auto slots = slots_of(self, ids);
             const Progress signals = make_progress(py::none());
             paging([&] {
               ReleaseGil released;
               self.pager->prefetch(slots);
               if (wait) self.pager->finish_prefetch(signals);
             });
           })
      .def("slot", &slot_of, py::arg("id"), "The slot of a name; TensorNotFound when there is none.")
      .def("describe", &describe, py::arg("slot"), "(name, dtype, shape); of a raw source only the name is known.")
      .def("__len__", [](const Paging& self) { return self.pager->table().size(); })
      .def("__contains__",
           [](const Paging& self, const py::object& id) {
             return (PyLong_Check(id.ptr()) != 0 || PyUnicode_Check(id.ptr()) != 0) && find_slot(self, id).has_value();
           })
      .def(
          "pin", [](const Paging& self, const py::object& id) { self.pager->pin(slot_of(self, id)); }, py::arg("id"))
      .def(
          "unpin",
          [](const Paging& self, const py::object& id) {
            const std::size_t slot = slot_of(self, id);
            paging([&] { self.pager->unpin(slot); });
          },
          py::arg("id"))
      .def(
          "evict",
          [](const Paging& self, const py::object& id) {
            const std::size_t slot = slot_of(self, id);
            ReleaseGil released;
            return self.pager->evict(slot);
          },
          py::arg("id"), "Lets a tensor go; False when it is not resident, or pinned.")
      .def(
          "clear", [](const Paging& self) { return self.pager->clear(); }, nogil,
          "Lets everything go that is not pinned; returns how many tensors that were.")
      .def(
          "_set_budget", [](const Paging& self, std::uint64_t bytes) { self.pager->set_budget(bytes); }, nogil)
      .def(
          "close", [](const Paging& self) { self.pager->close(); }, nogil,
          "Lets everything go. Tensors that are held, and what was made from them, stay.")
      .def(
          "is_resident",
          [](const Paging& self, const py::object& id) {
            const auto slot = find_slot(self, id);
            return slot && self.pager->is_resident(*slot);
          },
          py::arg("id"))
      .def(
          "is_pinned",
          [](const Paging& self, const py::object& id) {
            const auto slot = find_slot(self, id);
            return slot && self.pager->is_pinned(*slot);
          },
          py::arg("id"))
      .def_property_readonly("resident_bytes", [](const Paging& self) { return self.pager->resident_bytes(); })
      .def_property_readonly("resident_count", [](const Paging& self) { return self.pager->resident_count(); })
      .def_property_readonly("_budget", [](const Paging& self) { return self.pager->budget_bytes(); })
      .def_property_readonly("live_bytes", [](const Paging& self) { return self.pager->live_bytes(); })
      .def_property_readonly("over_budget_bytes", [](const Paging& self) { return self.pager->over_budget_bytes(); })
      .def_property_readonly("reads_directly", [](const Paging& self) { return self.pager->reads_directly(); })
      .def("_stats",
           [](const Paging& self, const py::object& id) {
             return stats_dict(id.is_none() ? self.pager->stats() : self.pager->stats(slot_of(self, id)));
           })
      .def("reset_stats", [](const Paging& self) { self.pager->reset_stats(); });
  PyObject* method = PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(cls.ptr()), &acquire_method);
  if (method == nullptr) throw py::error_already_set();
  cls.attr("acquire") = py::reinterpret_steal<py::object>(method);
}

}  // namespace weightstore::python
