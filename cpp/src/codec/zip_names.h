#pragma once

// A glance at a ZIP archive, to tell what it holds.
//
// Nothing is checked that finding names does not need, so the answer only says which reader to ask. The reader reads
// the archive through ZipDirectory, which checks everything.

#include <functional>
#include <string_view>

#include "weightstore/byte_source.h"

namespace weightstore {

// The name of the first record of an archive that begins with the bytes `head`, as far as `head` has it; empty when
// `head` is not the beginning of an archive.
std::string_view first_zip_name(std::string_view head);

// Calls visit() with the name of each record, in the order of the directory, until visit() returns false. An archive
// whose directory cannot be read was cut short, perhaps; visit() then gets the name of the first record, if that is
// there, and the result is false. Takes time in proportion to the directory and 256 KiB of memory. Throws only what
// `source` throws.
bool visit_zip_names(const ByteSource& source, const std::function<bool(std::string_view name)>& visit);

// True when `wanted` holds for one of these names.
bool any_zip_name(const ByteSource& source, bool (*wanted)(std::string_view name));

}  // namespace weightstore
