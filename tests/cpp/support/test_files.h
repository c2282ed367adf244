#pragma once

// Files and bytes for tests: a directory that vanishes, whole files in and out, and the data that is kept outside of
// the repository.

#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/byte_source.h"

namespace test_files {

// A file system in memory, where a sync costs nothing, if the machine has one.
inline std::filesystem::path in_memory() {
  return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
}

// A new directory, removed with everything in it.
class TempDir {
 public:
  explicit TempDir(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string name = (parent / "weightstore-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create a directory " + name);
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  std::string bytes(std::filesystem::file_size(path), '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

inline void write_file(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

// Bytes are kept in strings, which literals, comparisons and messages understand; these are their borders to the
// library.
inline weightstore::ConstBytes as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string as_text(weightstore::ConstBytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// `count` bytes that differ from their neighbours and from those of other seeds.
inline std::string pattern(std::size_t count, std::uint32_t seed = 1) {
  std::string bytes(count, '\0');
  std::uint32_t state = seed * 2654435761u + 1;
  for (char& byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<char>(state >> 24);
  }
  return bytes;
}

// A source that owns its bytes in a block of exactly their size, so that a sanitizer sees a read past the end.
inline std::shared_ptr<const weightstore::ByteSource> source_of(std::string_view bytes) {
  const auto owner = std::make_shared<std::vector<char>>(bytes.begin(), bytes.end());
  return weightstore::memory_source({reinterpret_cast<const std::byte*>(owner->data()), owner->size()}, owner);
}

// The directory of test data that $WEIGHTSTORE_TESTDATA names; empty when it is unset.
inline std::filesystem::path test_data() {
  const char* path = std::getenv("WEIGHTSTORE_TESTDATA");
  return path == nullptr ? std::filesystem::path() : std::filesystem::path(path);
}

}  // namespace test_files
