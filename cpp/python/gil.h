#pragma once

// Taking the GIL and giving it up. All code of this module does so through these classes, because pybind11's own are
// not safe when the interpreter ends.
//
// While Python finalizes the interpreter, a thread that asks for the GIL never gets it: CPython ends such a thread with
// pthread_exit(). C++ cannot be left that way: an exception handler or a destructor in between aborts the process. So
// an atexit hook closes a gate before finalization begins. From then on, only the thread that ends the interpreter may
// pass the gate to take the GIL. The hook waits for threads that have passed before: for example for a read() of a
// callable.

#include <pybind11/pybind11.h>

#include <optional>

namespace weightstore::python {

// Gives up the GIL while it lives. When the gate is closed, the destructor blocks until the process has ended.
class ReleaseGil {
 public:
  ReleaseGil() : released_(std::in_place) {}
  ~ReleaseGil();
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  std::optional<pybind11::gil_scoped_release> released_;
};

// Holds the GIL while it lives, on any thread.
class HoldGil {
 public:
  // Throws Error(kCancelled) when the gate is closed.
  HoldGil();
  ~HoldGil();
  HoldGil(const HoldGil&) = delete;
  HoldGil& operator=(const HoldGil&) = delete;

 private:
  bool passed_ = false;
  std::optional<pybind11::gil_scoped_acquire> held_;
};

// Drops a reference on any thread. When the gate is closed, the object leaks: the process is about to end.
void drop_reference(PyObject* object) noexcept;
void release_buffer(Py_buffer& buffer) noexcept;

// Registers the atexit hook.
void init_gil(pybind11::module_& m);

}  // namespace weightstore::python
