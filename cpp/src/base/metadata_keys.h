#pragma once

// Metadata entries with a meaning for other libraries or for this one. The key of the checksums is in
// weightstore/checksum.h.

#include <string_view>

namespace weightstore {

// If a SafeTensors file has metadata, Hugging Face's loaders read it only if this entry names a framework that they
// know, such as "pt". Burn's stores write "burnpack" under the same key.
inline constexpr std::string_view kFormatKey = "format";
inline constexpr std::string_view kFormatPt = "pt";
inline constexpr std::string_view kFormatBurnpack = "burnpack";

// In a Burnpack file: the metadata comes from a SafeTensors file that had no `format` entry.
inline constexpr std::string_view kFormatSafetensors = "safetensors";

// Says which tensors are parts of tables (file/table_entry.h). It is in the index of a set, or in a file.
inline constexpr std::string_view kTablesKey = "weightstore";

}  // namespace weightstore
