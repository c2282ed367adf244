#pragma once

// How Python names the tensors of a Reader.

#include <pybind11/pybind11.h>

#include <cstddef>
#include <optional>

#include "weightstore/reader.h"

namespace weightstore::python {

// The number of a tensor. Throws IndexError if there is no tensor with this number.
std::size_t checked(const Reader& reader, std::size_t tensor);

// The number of the tensor with this name.
std::optional<std::size_t> find(const Reader& reader, const pybind11::str& name);

}  // namespace weightstore::python
