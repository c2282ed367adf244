// The one place where an Error becomes a Python exception.

#include "bindings.h"
#include "objects/py_error.h"
#include "objects/py_object.h"
#include "weightstore/error.h"
#include "weightstore/pager.h"

namespace weightstore::python {

namespace {

py::object text_or_none(const std::string& text) {
  return text.empty() ? py::object(py::none()) : py::object(to_str(text));
}

py::object exception_of(const Error& error, std::string_view code, std::string_view place) {
  const py::object offset = error.offset() ? py::object(py::int_(*error.offset())) : py::object(py::none());
  const py::object path = error.path().empty() ? py::object(py::none()) : py::object(path_to_str(error.path()));
  return py::module_::import("weightstore.errors")
      .attr("from_core")(to_str(code), to_str(place), to_str(error.what()), to_str(error.message()), path,
                         text_or_none(error.tensor()), offset, error.os_errno(), text_or_none(error.reference_text()));
}

void raise(const Error& error) {
  py::object exception;
  if (const auto* missing = dynamic_cast<const OffloadEof*>(&error)) {
    exception = exception_of(error, "offload_eof", "pager");
    exception.attr("needed") = missing->needed();
    exception.attr("available") = missing->available();
  } else if (const auto* full = dynamic_cast<const BudgetExceeded*>(&error)) {
    exception = exception_of(error, "budget_exceeded", "pager");
    exception.attr("needed") = full->needed();
    exception.attr("budget") = full->budget();
    py::list holders;
    for (const std::string& name : full->holders()) holders.append(to_str(name));
    exception.attr("holders") = holders;
  } else {
    const bool of_pager = dynamic_cast<const ErrorOfPager*>(&error) != nullptr;
    exception = exception_of(error, to_string(error.code()), of_pager ? "pager" : to_string(error.format()));
  }
  PyErr_SetObject(py::type::handle_of(exception).ptr(), exception.ptr());
}

}  // namespace

void init_error(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr pending) {
    try {
      if (pending) std::rethrow_exception(pending);
    } catch (const PythonError& error) {
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.value())), error.value());
    } catch (const Error& error) {
      try {
        raise(error);
      } catch (py::error_already_set& failed) {
        failed.restore();  // the factory itself failed: better its error than none
      }
    }
  });
}

}  // namespace weightstore::python
