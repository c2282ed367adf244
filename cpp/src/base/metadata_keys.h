#pragma once

// Metadata entries that mean something: to other libraries, or to this one. The checksums' is in
// weightstore/checksum.h.

#include <string_view>

namespace weightstore {

// Hugging Face's loaders read a SafeTensors file with metadata only when this entry names a framework that they know,
// such as "pt". Burn's stores write "burnpack" under the same key.
inline constexpr std::string_view kFormatKey = "format";
inline constexpr std::string_view kFormatPt = "pt";
inline constexpr std::string_view kFormatBurnpack = "burnpack";

// In a Burnpack file: the metadata comes from a SafeTensors file that had no `format`.
inline constexpr std::string_view kFormatSafetensors = "safetensors";

// Which tensors are blocks of tables: file/table_entry.h. Lives in the index of a set, or in a file.
inline constexpr std::string_view kTablesKey = "weightstore";

}  // namespace weightstore
