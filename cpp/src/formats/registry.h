#pragma once

// The list of all file formats.

#include <span>
#include <string>

#include "formats/format_spec.h"

namespace weightstore {

// All formats, in the order in which detect_format() asks them.
std::span<const FormatSpec* const> all_formats();

// What the library knows about a format. Throws Error(kInvalidArgument) for Format::kUnknown.
const FormatSpec& spec_of(Format format);

// For messages: the recommended endings of the formats for which `wanted` is true, such as ".bpk or .safetensors".
std::string endings_of(bool (*wanted)(const FormatSpec& spec));

}  // namespace weightstore
