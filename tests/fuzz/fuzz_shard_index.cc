// A shard index: what passes names plain files only, and survives being written and parsed again.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bounds.h"
#include "codec/json.h"
#include "fuzzing.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"

namespace {

using namespace weightstore;

std::optional<safetensors::ShardIndex> parse(std::string_view json) {
  static Bounds bounds("parse", R"({"weight_map":{}})", safetensors::parse_index);
  try {
    return bounds.run(json.size(), [&] { return safetensors::parse_index(json); });
  } catch (const Error& error) {
    require(error.code() == ErrorCode::kCorrupt);
    require(error.format() == Format::kSafetensorsIndex);
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto index = parse({reinterpret_cast<const char*>(data), size});
  if (!index) return 0;
  const TextMap& map = index->weight_map;
  for (std::size_t i = 0; i < map.size(); ++i) {
    const std::string_view file = map.value(i);
    require(file.find_first_of(std::string_view("/\\:\0", 4)) == std::string_view::npos);
    const std::string_view ending = index->shard_format == Format::kPytorch ? ".bin" : ".safetensors";
    require(file.ends_with(ending) && file != ending);
    require(i == 0 || map.key(i - 1) < map.key(i));
  }
  JsonCursor metadata(index->metadata_json);
  require(metadata.skip_value().front() == '{');

  static Bounds bounds("write", "", [](std::string_view) { safetensors::write_index({}, 7, nullptr); });
  const std::string written = bounds.run(size, [&] { return safetensors::write_index(map, 7, nullptr); });
  const auto again = parse(written);
  require(again.has_value() && again->weight_map.size() == map.size());
  for (std::size_t i = 0; i < map.size(); ++i) {
    require(again->weight_map.key(i) == map.key(i) && again->weight_map.value(i) == map.value(i));
  }
  require(safetensors::write_index(again->weight_map, 7, nullptr) == written);
  return 0;
}
