#pragma once

// Arrays for tests, as numpy.save() writes them and as it does not.

#include <string>
#include <string_view>

#include "zip_files.h"

namespace numpy_files {

// `text` as the header of `data`. The length field has two bytes in version 1, else four.
inline std::string with_header(std::string_view text, std::string_view data, int version = 1) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(version);
  file += '\0';
  zip_files::put(file, text.size(), version == 1 ? 2 : 4);
  return file + std::string(text) + std::string(data);
}

inline std::string header_text(std::string_view descr, bool fortran, std::string_view shape) {
  return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + std::string(shape) + ", }\n";
}

inline std::string array(std::string_view descr, bool fortran, std::string_view shape, std::string_view data,
                         int version = 1) {
  return with_header(header_text(descr, fortran, shape), data, version);
}

}  // namespace numpy_files
