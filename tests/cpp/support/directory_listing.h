#pragma once

// Lists files and open descriptors. Tests compare the lists before and after an operation that fails.

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace directory_listing {

// Names of all entries of a directory, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Descriptors this process has open, without the one that counting needs.
inline std::size_t open_descriptors() { return names_in("/proc/self/fd").size() - 1; }

}  // namespace directory_listing
