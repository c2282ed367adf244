#pragma once

// The header of a GGUF file: everything before the data (docs/formats.md, "GGUF header").

#include <cstdint>
#include <memory>
#include <vector>

#include "weightstore/byte_source.h"
#include "weightstore/read_options.h"
#include "weightstore/typed_metadata.h"

namespace weightstore::gguf {

inline constexpr std::uint32_t kOldestVersion = 2;
inline constexpr std::uint32_t kVersion = 3;  // the one that is written
inline constexpr std::uint32_t kDefaultAlignment = 32;
inline constexpr std::string_view kMagic = "GGUF";
inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr std::size_t kFixedBytes = 4 + 4 + 8 + 8;  // magic, version, tensors, entries

// A header in memory of its own. All lengths in it have been checked, and all its numbers are little-endian, whatever
// the order of the file.
struct Header {
  std::shared_ptr<const char[]> text;
  std::uint64_t size = 0;           // up to the end of the descriptions of tensors
  bool is_big_endian = false;       // the tensors of the file are
  std::uint64_t tensors = 0;        // how many
  std::uint64_t tensors_begin = 0;  // where their descriptions begin
  std::vector<TypedMetadata::Entry> metadata;
};

// Reads the header, and as many bytes behind it again at most. Takes three times its size of memory, and 20 bytes for
// each entry of the metadata. Throws Error(kCorrupt) for a header that breaks the rules or is cut short,
// Error(kUnsupported) for another version, and Error(kLimit) for one larger than limits.gguf_header_bytes.
Header read_header(const ByteSource& source, const Limits& limits);

}  // namespace weightstore::gguf
