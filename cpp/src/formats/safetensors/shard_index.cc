// model.safetensors.index.json and pytorch_model.bin.index.json, as Hugging Face's tools write them. A shard name comes
// from an untrusted file and becomes part of a path, so it must be one plain component.

#include <algorithm>
#include <string>
#include <utility>

#include "base/metadata_keys.h"
#include "codec/json.h"
#include "formats/safetensors/header.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"

namespace weightstore::safetensors {
namespace {

constexpr std::string_view kTorchExtension = ".bin";

// The format of a file, by its name. Throws for a name that is none.
Format check_shard_name(const JsonCursor& cursor, std::string_view tensor, std::string_view file) {
  const auto refuse = [&](const char* why) {
    cursor.fail("shard '" + printable(file) + "' of tensor '" + printable(tensor) + "' " + why);
  };
  if (file.find_first_of(std::string_view("/\\:\0", 4)) != std::string_view::npos) {
    refuse("is not a plain file name beside the index");
  }
  // Also rules out the empty name, "." and "..".
  const auto is = [&](std::string_view ending) { return file.size() > ending.size() && file.ends_with(ending); };
  if (!is(kExtension) && !is(kTorchExtension)) refuse("ends neither in .safetensors nor in .bin");
  return is(kExtension) ? Format::kSafetensors : Format::kPytorch;
}

// One entry a line, sorted, as the tools that read such files by eye expect.
void append_object(std::string& json, Value::Map map) {
  std::sort(map.begin(), map.end(), [](const auto& a, const auto& b) {
    return *a.first.template get_if<std::string>() < *b.first.template get_if<std::string>();
  });
  json += "{";
  for (std::size_t i = 0; i < map.size(); ++i) {
    json += i == 0 ? "\n    " : ",\n    ";
    json += json_encode(map[i].first) + ": " + json_encode(map[i].second);
  }
  json += map.empty() ? "}" : "\n  }";
}

// The entry about tables is an object in an index, where files can only have its text.
Value metadata_value(std::string_view key, std::string_view text) {
  if (key == kTablesKey) {
    try {
      Value entry = json_decode(text);
      if (entry.get_if<Value::Map>() != nullptr) return entry;
    } catch (const Error&) {
      // Somebody else's text.
    }
  }
  return std::string(text);
}

}  // namespace

ShardIndex parse_index(std::string_view json) try {
  ShardIndex index;
  index.metadata_json = "{}";
  JsonCursor cursor(json);
  bool has_map = false;
  bool has_metadata = false;
  std::string key_scratch;
  std::string scratch;
  std::string_view key;
  cursor.begin_object();
  while (cursor.next_key(key, key_scratch)) {
    if (key == "weight_map") {
      if (std::exchange(has_map, true)) cursor.fail("duplicate key 'weight_map'");
      std::string_view tensor;
      cursor.begin_object();
      while (cursor.next_key(tensor, key_scratch)) {
        if (cursor.peek() != '"') cursor.fail("the shard of tensor '" + printable(tensor) + "' is not a string");
        const std::string_view file = cursor.read_string(scratch);
        const Format format = check_shard_name(cursor, tensor, file);
        if (index.weight_map.size() > 0 && format != index.shard_format) {
          cursor.fail("the index names both .safetensors and .bin files");
        }
        index.shard_format = format;
        index.weight_map.add(tensor, file);
      }
    } else if (key == "metadata") {
      if (std::exchange(has_metadata, true)) cursor.fail("duplicate key 'metadata'");
      if (cursor.peek() != '{' && cursor.peek() != 'n') cursor.fail("'metadata' is not an object");
      const std::string_view text = cursor.skip_value();
      if (text != "null") index.metadata_json = text;
    } else {
      cursor.skip_value();
    }
  }
  cursor.expect_end();
  if (!has_map) throw Error(ErrorCode::kCorrupt, "not a shard index: it has no 'weight_map'");
  index.weight_map.sort();
  if (const std::size_t i = index.weight_map.duplicate(); i < index.weight_map.size()) {
    throw Error(ErrorCode::kCorrupt, "the index names it twice").in_tensor(index.weight_map.key(i));
  }
  return index;
} catch (Error& error) {
  error.of_format(Format::kSafetensorsIndex);
  throw;
}

std::string write_index(const TextMap& weight_map, std::uint64_t total_size, const TextMap* metadata) {
  Value::Map head = {{"total_size", total_size}};
  if (metadata != nullptr) {
    for (std::size_t i = 0; i < metadata->size(); ++i) {
      if (metadata->key(i) == "total_size") continue;  // ours is right whatever the caller says
      head.emplace_back(std::string(metadata->key(i)), metadata_value(metadata->key(i), metadata->value(i)));
    }
  }
  std::string json = "{\n  \"metadata\": ";
  append_object(json, std::move(head));
  json += ",\n  \"weight_map\": ";
  Value::Map map;
  for (std::size_t i = 0; i < weight_map.size(); ++i) {
    map.emplace_back(std::string(weight_map.key(i)), std::string(weight_map.value(i)));
  }
  append_object(json, std::move(map));
  json += "\n}\n";
  return json;
}

}  // namespace weightstore::safetensors
