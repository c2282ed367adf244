#include "objects/py_progress.h"

#include <chrono>

#include "gil.h"
#include "objects/py_object.h"

namespace weightstore::python {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSignalInterval = std::chrono::milliseconds(100);

}  // namespace

Progress make_progress(py::object callback) {
  const bool has_callback = !callback.is_none();
  const SharedObject shared = has_callback ? share(std::move(callback)) : nullptr;
  return [shared, last = Clock::now()](std::uint64_t done, std::uint64_t total, std::string_view name) mutable {
    const auto now = Clock::now();
    const bool look_at_signals = now - last >= kSignalInterval;
    if (!look_at_signals && shared == nullptr) return true;

    HoldGil gil;
    if (look_at_signals) {
      last = now;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
    }
    if (shared == nullptr) return true;
    const py::object result = py::handle(shared.get())(done, total, to_str(name));
    return !(PyBool_Check(result.ptr()) && result.ptr() == Py_False);
  };
}

}  // namespace weightstore::python
