#pragma once

// Errors that only the border between C++ and Python knows.

#include <exception>

#include "objects/py_object.h"
#include "weightstore/error.h"

namespace weightstore::python {

// A Python exception on its way through C++, which several threads may throw: pybind11's own can be raised only once.
// Made with the GIL held.
class PythonError : public std::exception {
 public:
  explicit PythonError(const py::error_already_set& error) : value_(share(error.value())) {}
  PyObject* value() const { return value_.get(); }
  const char* what() const noexcept override { return "a Python exception"; }

 private:
  SharedObject value_;
};

// An error about a pager: it becomes a PagerError, too.
class ErrorOfPager : public Error {
 public:
  explicit ErrorOfPager(const Error& error) : Error(error) {}
};

}  // namespace weightstore::python
