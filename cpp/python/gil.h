#pragma once

// Taking the GIL and giving it up. All code of this module does so through these classes, because pybind11's own are
// not safe when the interpreter ends.
//
// While Python finalizes the interpreter, a thread that asks for the GIL never gets it: CPython ends such a thread with
// pthread_exit(). C++ cannot be left that way: an exception handler or a destructor in between aborts the process. Two
// kinds of threads need two remedies:
//
//  - Threads that Python started come back from a call, or run a callback. They may take the GIL as long as Python
//    gives it: other atexit hooks may be waiting for them. When CPython ends such a thread, it blocks until the process
//    has ended.
//  - Threads that the library started are joined by destructors, so they must not block. An atexit hook closes a gate
//    before finalization begins: from then on these threads may not ask for the GIL, unless the thread that ends the
//    interpreter is inside a call and works with their help. The hook waits a few seconds for callbacks that have
//    begun.

#include <pybind11/pybind11.h>

#include <optional>

namespace weightstore::python {

// Gives up the GIL while it lives. When the interpreter has ended, the destructor blocks until the process has, too.
class ReleaseGil {
 public:
  ReleaseGil();
  ~ReleaseGil();
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  PyThreadState* const state_;
  const bool ends_;  // on the thread that ends the interpreter
};

// Holds the GIL while it lives, on any thread.
class HoldGil {
 public:
  // Throws Error(kCancelled) when the gate is closed for this thread.
  HoldGil();
  ~HoldGil();
  HoldGil(const HoldGil&) = delete;
  HoldGil& operator=(const HoldGil&) = delete;

 private:
  bool passed_ = false;
  std::optional<pybind11::gil_scoped_acquire> held_;
};

// Drops a reference on any thread. When the gate is closed for it, the object leaks: the process is about to end.
void drop_reference(PyObject* object) noexcept;
void release_buffer(Py_buffer& buffer) noexcept;

// Registers the atexit hook.
void init_gil(pybind11::module_& m);

}  // namespace weightstore::python
