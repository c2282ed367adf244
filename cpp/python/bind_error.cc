// The one place where an Error becomes a Python exception.

#include "bindings.h"
#include "py_object.h"
#include "weightstore/error.h"

namespace weightstore::python {

namespace {

py::object text_or_none(const std::string& text) {
  return text.empty() ? py::object(py::none()) : py::object(to_str(text));
}

void raise(const Error& error) {
  const py::object offset = error.offset() ? py::object(py::int_(*error.offset())) : py::object(py::none());
  const py::object path = error.path().empty() ? py::object(py::none()) : py::object(path_to_str(error.path()));
  const py::object exception =
      py::module_::import("weightstore.errors")
          .attr("from_core")(to_str(to_string(error.code())), to_str(to_string(error.format())), to_str(error.what()),
                             to_str(error.message()), path, text_or_none(error.tensor()), offset, error.os_errno(),
                             text_or_none(error.reference_text()));
  PyErr_SetObject(py::type::handle_of(exception).ptr(), exception.ptr());
}

}  // namespace

void init_error(py::module_&) {
  py::register_local_exception_translator([](std::exception_ptr pending) {
    try {
      if (pending) std::rethrow_exception(pending);
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
