#include "checkpoint/checkpoint_files.h"

#include "checkpoint/checkpoint_index.h"
#include "checkpoint/layouts.h"
#include "checkpoint/save_names.h"
#include "codec/json.h"
#include "codec/json_fields.h"
#include "io/paths.h"
#include "io/text_file.h"
#include "weightstore/error.h"
#include "weightstore/safetensors.h"

namespace weightstore::checkpoint {

std::optional<std::set<std::string>> checkpoint_files(const std::filesystem::path& directory, io::FileOps& ops) {
  std::set<std::string> files;
  try {
    if (io::is_there(directory / kPlainIndex, ops)) {
      const std::string text = io::read_text_file(directory / kPlainIndex, kMaxIndexBytes, ops);
      files.insert(kPlainIndex);
      const TextMap map = safetensors::parse_index(text).weight_map;
      for (std::size_t i = 0; i < map.size(); ++i) files.emplace(map.value(i));
    }
    if (io::is_there(directory / kRecisIndex, ops)) {
      const Value index = json_decode(io::read_text_file(directory / kRecisIndex, kMaxIndexBytes, ops));
      files.insert({kRecisIndex, kRecisKeys, kRecisDescription});
      const auto* named = field(index, "file_index").get_if<Value::Map>();
      if (named == nullptr) return std::nullopt;
      for (const auto& [key, number] : *named) {
        // A save removes the files of this set, so it must not have others than data files.
        const std::string& name = *key.get_if<std::string>();
        if (is_data_name(name)) files.insert(name);
      }
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  return files;
}

}  // namespace weightstore::checkpoint
