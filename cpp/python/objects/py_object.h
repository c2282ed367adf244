#pragma once

// Python objects, text, paths, types and buffers on their way into and out of C++.

#include <pybind11/pybind11.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "weightstore/byte_source.h"
#include "weightstore/dtype.h"

namespace weightstore::python {

namespace py = pybind11;

// A Python object that code without the GIL may copy and drop.
using SharedObject = std::shared_ptr<PyObject>;
SharedObject share(py::object object);

// str from UTF-8; bytes that are none are replaced, because a message must never fail.
py::str to_str(std::string_view text);
// str from the bytes of a path, as os.fsdecode() does.
py::str path_to_str(std::string_view path);
// The inverse, as os.fsencode() does; nullopt for text that no path has.
std::optional<std::string> path_of_str(const py::str& text);
// A path from str, bytes or os.PathLike.
std::filesystem::path to_path(py::handle path);

// The bytes of a str, valid while it lives. Throws UnicodeEncodeError for lone surrogates.
std::string_view utf8_of(const py::str& text);

// The element type with this name. Throws Error(kInvalidArgument).
DType dtype_named(const std::string& name);
// Bytes of an element of the type with this name. Throws Error(kUnsupported) for those that are no whole number of
// bytes.
std::size_t item_bytes_of(const std::string& name);

// The memory of an object with a contiguous buffer, held until the last owner is gone. Throws TypeError or BufferError.
SharedBytes buffer_bytes(py::handle object);

}  // namespace weightstore::python
