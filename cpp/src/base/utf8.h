#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weightstore {

// The length of the longest prefix of `text` that is well-formed UTF-8 (no overlong forms, no surrogates, nothing above
// U+10FFFF). It is text.size() when all of the text is well-formed.
std::size_t valid_utf8_prefix(std::string_view text);

inline bool is_utf8(std::string_view text) { return valid_utf8_prefix(text) == text.size(); }

// Appends a code point as UTF-8. It must be a Unicode scalar value.
void append_utf8(std::string& out, char32_t code_point);

}  // namespace weightstore
