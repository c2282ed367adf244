#pragma once

// A file in memory. Needs neither threads nor files.

#include <cstddef>
#include <vector>

#include "weightstore/file_contents.h"
#include "weightstore/layout.h"

namespace weightstore {

// The bytes of the file that `layout` plans. `layout` is the result of safetensors::plan() or burnpack::plan() for
// these contents. Throws Error(kInvalidArgument) if a tensor's producer no longer has the planned size, and what a
// producer throws. Writes no checksums; Writer does, on request.
std::vector<std::byte> file_bytes(const FileContents& contents, const Layout& layout);

}  // namespace weightstore
