#pragma once

// Pieces of pickles and of the files around them, as tests of what such files may cost put them together.

#include <cstdint>
#include <string>
#include <string_view>

#include "zip_files.h"

namespace pickle_parts {

inline std::string times(std::size_t count, std::string_view part) {
  std::string out;
  out.reserve(count * part.size());
  for (std::size_t i = 0; i < count; ++i) out += part;
  return out;
}

inline std::string text(std::string_view t) {
  std::string out = "X";
  zip_files::put(out, t.size(), 4);
  return out + std::string(t);
}

// A value as an entry of the memo.
inline std::string remembered(std::string value, char entry) { return std::move(value) + "q" + entry; }

// A tensor of floats over storage 0; its size and strides as instructions.
inline std::string tensor(std::string_view size = "K\4\x85", std::string_view strides = "K\1\x85",
                          std::string_view key = "0") {
  using namespace std::string_literals;
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\nFloatStorage\n" + text(key) +
         text("cpu") + "K\4tQK\0"s + std::string(size) + std::string(strides) +
         "\x89"
         "ccollections\nOrderedDict\n)RtR";
}

// A list of everything that `body` leaves on the stack.
inline std::string list_file(const std::string& body) { return zip_files::torch_file("\x80\2](" + body + "e."); }

// The same list in a file of torch before 1.6, over a storage of four floats.
inline std::string list_stream(const std::string& body) {
  using namespace std::string_literals;
  return "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\3.\x80\2}.\x80\2](" + body + "e.\x80\2](" +
         text("0") + "e.\4\0\0\0\0\0\0\0"s + std::string(16, '\0');
}

}  // namespace pickle_parts
