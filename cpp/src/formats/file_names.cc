// Which format the name of a file promises or asks for.

#include <algorithm>
#include <cctype>
#include <string>

#include "formats/registry.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

bool ends_with_any_case(std::string_view text, std::string_view lower) {
  if (text.size() < lower.size()) return false;
  return std::equal(lower.begin(), lower.end(), text.end() - static_cast<std::ptrdiff_t>(lower.size()),
                    [](char a, char b) { return a == static_cast<char>(std::tolower(static_cast<unsigned char>(b))); });
}

// The ending of `spec` that the name has; empty when it has none.
std::string_view ending_in(std::string_view file_name, const FormatSpec& spec) {
  for (const std::string_view ending : spec.endings) {
    if (ends_with_any_case(file_name, ending)) return ending;
  }
  return {};
}

bool is_planned(const FormatSpec& spec) { return spec.plan != nullptr; }

}  // namespace

void check_name(std::string_view path, Format content) {
  for (const FormatSpec* named : all_formats()) {
    if (!named->owns_endings || content == named->id || ending_in(path, *named).empty()) continue;
    const FormatSpec& found = spec_of(content);
    throw Error(ErrorCode::kUnsupported, "is named as " + std::string(named->described) + ", but is " +
                                             std::string(found.described) + "; if that is what you want, give it " +
                                             "a name that ends in " + std::string(found.endings.front()))
        .of_format(named->id)
        .known_as("header too large");
  }
}

Format format_of_name(std::string_view file_name) {
  std::string reason = "cannot tell the format from the name '" + std::string(file_name) + "'";
  for (const FormatSpec* spec : all_formats()) {
    const std::string_view ending = ending_in(file_name, *spec);
    if (ending.empty() || ending.size() == file_name.size()) continue;
    if (is_planned(*spec)) return spec->id;
    if (!spec->is_writable()) {
      reason = "'" + std::string(file_name) + "' is named as " + std::string(spec->described) +
               ", which this library reads but does not write";
    }
  }
  throw Error(ErrorCode::kInvalidArgument, reason + "; use " + endings_of(is_planned));
}

}  // namespace weightstore
