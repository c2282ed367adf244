#pragma once

// Files that are often found in place of weights.

#include <string>

#include "formats/format_spec.h"

namespace weightstore {

// What a file of none of our formats seems to be, and what to do about it, as it follows "this is"; empty when there is
// no telling.
std::string describe_foreign_file(const FileHead& head);

}  // namespace weightstore
