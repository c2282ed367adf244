#include "gil.h"

#include <cxxabi.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>

#include "weightstore/error.h"

namespace weightstore::python {

namespace py = pybind11;

namespace {

constexpr auto kTimeToEnd = std::chrono::seconds(2);

// Threads that have passed the gate and have not left it yet hold the GIL, wait for it, or run nested code without it.
// A thread adds itself before it looks whether the gate is closed, and the hook closes the gate before it looks for
// threads: one of the two sees the other.
struct Gate {
  std::atomic<int> inside{0};
  std::atomic<bool> closed{false};
  std::atomic<bool> refused{false};       // a thread was not let through
  std::atomic<std::thread::id> ending{};  // the thread that ends the interpreter
  std::atomic<int> ending_calls{0};       // the calls that this thread is inside of, without the GIL

  bool is_ending_thread() const { return closed && ending.load() == std::this_thread::get_id(); }
};

thread_local int depth = 0;  // how often this thread has passed and not left

// Never destroyed: threads may still ask while the process ends.
Gate& gate() {
  static Gate* const the_gate = [] {
    auto* made = new Gate;
    // Of the threads inside, only the one that forks exists in the child.
    ::pthread_atfork(nullptr, nullptr, [] { gate().inside = depth > 0 ? 1 : 0; });
    return made;
  }();
  return *the_gate;
}

bool started_by_python() { return PyGILState_GetThisThreadState() != nullptr; }

bool pass() {
  if (depth > 0) {
    ++depth;
    return true;
  }
  Gate& the_gate = gate();
  ++the_gate.inside;
  if (the_gate.closed && the_gate.ending_calls == 0 && !the_gate.is_ending_thread() && !started_by_python()) {
    --the_gate.inside;
    the_gate.refused = true;
    return false;
  }
  depth = 1;
  return true;
}

void leave() {
  if (--depth == 0) --gate().inside;
}

// Runs `take`, which asks CPython for the GIL. A thread that CPython ends instead stays here: it must not unwind.
template <class Take>
void take_gil(Take take) {
  try {
    take();
  } catch (const abi::__forced_unwind&) {
    for (;;) ::pause();
  }
}

// Waits until no other thread is inside the gate. A callback that does not return is not waited for: it does not ask
// for the GIL either.
template <class Pause>
void wait_for_others(Pause pause) {
  constexpr int kPauses = 5000;
  const int own = depth > 0 ? 1 : 0;
  for (int pauses = 0; gate().inside > own && pauses < kPauses; ++pauses) pause(pauses);
}

void close_gate() {
  constexpr auto kPause = std::chrono::milliseconds(1);
  constexpr int kPausesBetweenSignals = 50;
  Gate& the_gate = gate();
  the_gate.ending = std::this_thread::get_id();
  the_gate.closed = true;
  wait_for_others([&](int pauses) {
    if (pauses % kPausesBetweenSignals == 0 && PyErr_CheckSignals() != 0) throw py::error_already_set();
    const py::gil_scoped_release released;
    std::this_thread::sleep_for(kPause);
  });
}

template <class Work>
void with_gil(Work work) noexcept {
  if (!Py_IsInitialized()) return;
  if (PyGILState_Check() != 0) return work();
  if (!pass()) return;
  take_gil([&] {
    const py::gil_scoped_acquire held;
    work();
  });
  leave();
}

}  // namespace

ReleaseGil::ReleaseGil() : state_(PyEval_SaveThread()), ends_(gate().is_ending_thread()) {
  if (ends_) ++gate().ending_calls;
}

ReleaseGil::~ReleaseGil() {
  if (ends_ && --gate().ending_calls == 0) {
    wait_for_others([](int) { std::this_thread::sleep_for(std::chrono::milliseconds(1)); });
  }
  // A call that failed because the interpreter ends has nobody to tell, unless an atexit hook waits for its thread.
  if (!ends_ && gate().refused && std::uncaught_exceptions() > 0) std::this_thread::sleep_for(kTimeToEnd);
  take_gil([&] { PyEval_RestoreThread(state_); });
}

HoldGil::HoldGil() {
  if (PyGILState_Check() == 0) {
    passed_ = pass();
    if (!passed_) throw Error(ErrorCode::kCancelled, "Python is ending; nothing can be called any more");
  }
  take_gil([&] { held_.emplace(); });
}

HoldGil::~HoldGil() {
  held_.reset();
  if (passed_) leave();
}

void drop_reference(PyObject* object) noexcept {
  with_gil([&] { Py_DECREF(object); });
}

void release_buffer(Py_buffer& buffer) noexcept {
  if (buffer.obj != nullptr) with_gil([&] { PyBuffer_Release(&buffer); });
}

void init_gil(py::module_&) {
  gate();
  py::module_::import("atexit").attr("register")(py::cpp_function(&close_gate));
}

}  // namespace weightstore::python
