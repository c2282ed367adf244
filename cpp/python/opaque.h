#pragma once

#include <string>

#include "weightstore/error.h"
#include "weightstore/reader.h"

namespace weightstore::python {

inline Opaque opaque_named(const std::string& name) {
  if (name == "error") return Opaque::kError;
  if (name == "skip") return Opaque::kSkip;
  throw Error(ErrorCode::kInvalidArgument, "opaque is '" + name + "'; it is 'error' or 'skip'");
}

}  // namespace weightstore::python
