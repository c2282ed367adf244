#pragma once

// What an operation that failed may leave behind: files and descriptors.

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace leftovers {

// Names of all entries of a directory, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Descriptors this process has open, without the one that counting needs.
inline std::size_t open_descriptors() { return names_in("/proc/self/fd").size() - 1; }

}  // namespace leftovers
