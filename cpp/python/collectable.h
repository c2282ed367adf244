#pragma once

// Reference cycles through C++ objects, shown to Python's garbage collector.
//
// A bound object shows the Python objects that it keeps alive: callables and file objects that are read from, callables
// that produce. What it shows must be its own reference: shown twice, the collector would free an object that is in
// use. So exactly one bound object shows a reference that C++ code shares; others that share it hold a Python reference
// to that one, or show nothing. What is not shown is never freed too early: a cycle through it just stays.
//
// The collector runs with the GIL held, while threads of the pager read without it: only what does not change after it
// was made, or changes with the GIL held, may be shown. No bound class but Writer has a tp_clear: as with tuples, their
// references are there from the beginning, and a cycle contains something else that can be cleared.
//
// Objects whose buffers are read (bytes, arrays) are not shown: they hardly ever refer to anything.

#include <pybind11/pybind11.h>

#include <cstddef>
#include <functional>
#include <type_traits>

namespace weightstore::python {

// Visits what an object keeps. As tp_traverse: not zero when the collector asks to stop.
class Visitor {
 public:
  Visitor(visitproc visit, void* arg) : visit_(visit), arg_(arg) {}
  void operator()(PyObject* object) {
    if (object != nullptr && stopped_ == 0) stopped_ = visit_(object, arg_);
  }
  int result() const { return stopped_; }

 private:
  visitproc visit_;
  void* arg_;
  int stopped_ = 0;
};

// Something in C++ that keeps Python objects alive, and can show them.
class KeepsObjects {
 public:
  virtual ~KeepsObjects() = default;
  virtual void visit(Visitor& visitor) const = 0;
};

// The C++ object of a Python object of a class with one C++ base; null before __init__() has made it.
//
// This reads pybind11's own struct, as version 3.1.0 (third_party/requirements-build.txt) lays it out: py::cast takes
// several times as long as acquiring a resident tensor, and the garbage collector must not run Python code. The asserts
// and tests/python/pager/test_objects.py fail when the struct changes; look at detail::instance then.
template <class T>
T* made_object(PyObject* self) {
  using Instance = pybind11::detail::instance;
  static_assert(PYBIND11_VERSION_MAJOR == 3, "check that made_object() fits this version of pybind11");
  static_assert(std::is_same_v<std::remove_extent_t<decltype(Instance::simple_value_holder)>, void*>);
  static_assert(offsetof(Instance, simple_value_holder) == sizeof(PyObject));
  const auto* instance = reinterpret_cast<const Instance*>(self);
  const bool made = instance->simple_layout && instance->simple_holder_constructed;
  return made ? static_cast<T*>(instance->simple_value_holder[0]) : nullptr;
}

// For py::class_<T>: `Visit` is called with (const T&, Visitor&); `Clear`, if any, with (T&), and lets go of it
// all.
// `Constructible` says whether the class has a py::init; see only_from_functions().
template <class T, auto Visit = &T::visit, auto Clear = nullptr, bool Constructible = true>
pybind11::custom_type_setup collectable() {
  return pybind11::custom_type_setup([](PyHeapTypeObject* heap_type) {
    PyTypeObject* type = &heap_type->ht_type;
    type->tp_flags |= Py_TPFLAGS_HAVE_GC;
    if constexpr (!Constructible) type->tp_flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION;
    type->tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
      Py_VISIT(Py_TYPE(self));
      Visitor visitor(visit, arg);
      if (const T* made = made_object<T>(self)) std::invoke(Visit, *made, visitor);
      return visitor.result();
    };
    if constexpr (Clear != nullptr) {
      type->tp_clear = [](PyObject* self) {
        if (T* made = made_object<T>(self)) std::invoke(Clear, *made);
        return 0;
      };
    }
  });
}

// For py::class_ without a py::init: objects come from functions alone. Otherwise __new__() would make one without a
// C++ object in it, and its methods would read memory that nobody has written.
inline pybind11::custom_type_setup only_from_functions() {
  return pybind11::custom_type_setup(
      [](PyHeapTypeObject* type) { type->ht_type.tp_flags |= Py_TPFLAGS_DISALLOW_INSTANTIATION; });
}

}  // namespace weightstore::python
