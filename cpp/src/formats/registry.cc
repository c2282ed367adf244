#include "formats/registry.h"

#include <algorithm>
#include <array>

#include "base/checked.h"
#include "weightstore/error.h"

namespace weightstore {

// Each is defined in format.cc of its folder.
namespace burnpack {
const FormatSpec& format();
}
namespace safetensors {
const FormatSpec& format();
const FormatSpec& index_format();
}  // namespace safetensors
namespace pytorch {
const FormatSpec& format();
}
namespace numpy {
const FormatSpec& format();
}
namespace gguf {
const FormatSpec& format();
}

// SafeTensors comes before the formats that are known by a signature alone, because the length at the beginning of a
// SafeTensors file may look like any signature. The signatures of Burnpack and GGUF are no lengths that SafeTensors
// allows.
std::span<const FormatSpec* const> all_formats() {
  static const std::array kFormats = {
      &burnpack::format(),          &gguf::format(),    &safetensors::format(),
      &safetensors::index_format(), &pytorch::format(), &numpy::format(),
  };
  return kFormats;
}

const FormatSpec& spec_of(Format format) {
  for (const FormatSpec* spec : all_formats()) {
    if (spec->id == format) return *spec;
  }
  throw Error(ErrorCode::kInvalidArgument, "the format is unknown");
}

ExpansionLimit ExpansionLimit::usual(std::uint64_t file_bytes, const Limits& limits) {
  constexpr std::uint64_t kUsual = 16;
  return {std::max(limits.expanded_bytes, checked_mul(file_bytes, kUsual).value_or(file_bytes)), "expanded_bytes"};
}

std::string_view to_string(Format format) { return format == Format::kUnknown ? "unknown" : spec_of(format).name; }

std::string endings_of(bool (*wanted)(const FormatSpec& spec)) {
  std::string text;
  for (const FormatSpec* spec : all_formats()) {
    if (!wanted(*spec)) continue;
    if (!text.empty()) text += " or ";
    text += spec->endings.front();
  }
  return text;
}

}  // namespace weightstore
