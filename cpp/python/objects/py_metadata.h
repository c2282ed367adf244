#pragma once

// Typed metadata on their way to Python and back.

#include <pybind11/pybind11.h>

#include <optional>
#include <string>
#include <string_view>

#include "weightstore/typed_metadata.h"

namespace weightstore::python {

// int, float, bool, str, and lists of these. Bytes of a text that are not UTF-8 become lone surrogates, as
// os.fsdecode() makes them.
pybind11::object to_python(const MetadataView& value);

struct EncodedValue {
  MetadataType type;
  std::string bytes;  // as MetadataView::encoded()
};

// The inverse. `type` is a name such as "UINT32" or "ARRAY[STRING]"; without it the value tells: text is STRING, a
// float FLOAT32, an int the first of UINT32, INT32, INT64 and UINT64 that holds it, and in a list the first of INT32,
// UINT32, INT64 and UINT64 that holds all. Throws TypeError for a value of another class and for lists of several
// types, and Error(kInvalidArgument) for a number that its type does not hold. `key` is for messages.
EncodedValue encode_metadata(std::string_view key, pybind11::handle value, const std::optional<std::string>& type);

}  // namespace weightstore::python
