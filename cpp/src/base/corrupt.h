#pragma once

#include <string>
#include <utility>

#include "weightstore/error.h"

namespace weightstore {

// The error for a file that breaks the rules of its format.
inline Error corrupt(std::string message) { return Error(ErrorCode::kCorrupt, std::move(message)); }

}  // namespace weightstore
