// A file is what its structure says. The formats are asked one after the other, in the order of the registry.

#include <algorithm>
#include <array>
#include <string>

#include "formats/foreign_files.h"
#include "formats/registry.h"
#include "weightstore/error.h"

namespace weightstore {

Format detect_format(const ByteSource& source) try {
  std::array<char, kHeadBytes> buffer;
  const auto available = static_cast<std::size_t>(std::min<std::uint64_t>(source.size(), kHeadBytes));
  if (available == 0) throw Error(ErrorCode::kCorrupt, "the file is empty");
  source.read_at(0, {reinterpret_cast<std::byte*>(buffer.data()), available});
  const FileHead head{{buffer.data(), available}, source};
  for (const FormatSpec* spec : all_formats()) {
    if (spec->recognises(head)) return spec->id;
  }
  if (const std::string foreign = describe_foreign_file(head); !foreign.empty()) {
    throw Error(ErrorCode::kUnsupported, "this is " + foreign);
  }
  // SafeTensors has no signature: let its reader say what is wrong.
  return Format::kSafetensors;
} catch (Error& error) {
  throw error.in_file(source.name());
}

}  // namespace weightstore
