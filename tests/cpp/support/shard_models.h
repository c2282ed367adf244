#pragma once

// Models small enough to be saved as sets of shards a thousand times.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "check.h"
#include "test_files.h"
#include "weightstore/reader.h"
#include "weightstore/writer.h"

namespace shard_models {

inline constexpr const char* kIndex = "model.safetensors.index.json";

inline std::vector<std::string> files_in(const test_files::TempDir& dir) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Tensors t0, t1, ... of `size` bytes each, whose bytes depend on `seed`.
struct Model {
  Model(std::size_t count, std::size_t size, std::uint32_t seed) {
    for (std::size_t i = 0; i < count; ++i)
      data.push_back(test_files::pattern(size, seed + static_cast<std::uint32_t>(i)));
    for (std::size_t i = 0; i < count; ++i)
      writer.add("t" + std::to_string(i), weightstore::DType::kU8, {size}, test_files::as_bytes(data[i]));
  }

  void check(const weightstore::Reader& reader) const {
    CHECK_EQ(reader.table().size(), data.size());
    for (std::size_t i = 0; i < data.size(); ++i) {
      const std::size_t tensor = reader.table().at("t" + std::to_string(i));
      std::string out(data[i].size(), '\0');
      reader.read(tensor, {reinterpret_cast<std::byte*>(out.data()), out.size()});
      CHECK(out == data[i]);
    }
  }

  std::vector<std::string> data;
  weightstore::Writer writer;
};

}  // namespace shard_models
