#include <algorithm>
#include <string>
#include <utility>

#include "checkpoint/save_names.h"
#include "checkpoint/shard_record.h"
#include "codec/json.h"
#include "weightstore/error.h"
#include "weightstore/saver.h"

namespace weightstore {
namespace {

template <class T>
T option(const Value& value, const char* name) {
  const T* found = value.get_if<T>();
  if (found == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, std::string("the option '") + name + "' is of the wrong kind");
  }
  return *found;
}

}  // namespace

SaveOptions save_options_from_json(std::string_view json, SaveOptions base) {
  const Value value = json_decode(json);
  const auto* map = value.get_if<Value::Map>();
  if (map == nullptr) throw Error(ErrorCode::kInvalidArgument, "the options of a save are a JSON object");
  SaveOptions options = std::move(base);
  for (const auto& [key, entry] : *map) {
    const std::string& name = *key.get_if<std::string>();
    if (name == "layout") {
      options.layout = checkpoint::layout_from_name(option<std::string>(entry, "layout"));
    } else if (name == "durable") {
      options.durable = option<bool>(entry, "durable");
    } else if (name == "checksums") {
      options.checksums = option<bool>(entry, "checksums");
    } else if (name == "overwrite") {
      options.overwrite = option<bool>(entry, "overwrite");
    } else if (name == "attempt") {
      options.attempt = option<std::string>(entry, "attempt");
      if (!options.attempt.empty()) checkpoint::check_attempt(options.attempt);
    } else if (name == "run") {
      options.run = option<std::string>(entry, "run");
      checkpoint::check_run(options.run);
    } else if (name == "max_block_bytes") {
      const auto bytes = option<std::int64_t>(entry, "max_block_bytes");
      if (bytes < 0) throw Error(ErrorCode::kInvalidArgument, "the option 'max_block_bytes' is negative");
      options.max_block_bytes = static_cast<std::uint64_t>(bytes);
    } else if (name == "timeout") {
      const double seconds = entry.get_if<std::int64_t>() != nullptr
                                 ? static_cast<double>(*entry.get_if<std::int64_t>())
                                 : option<double>(entry, "timeout");
      // A year is longer than anybody waits, and far from overflowing.
      if (!(seconds >= 0)) throw Error(ErrorCode::kInvalidArgument, "the option 'timeout' is negative");
      options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(std::min(seconds, 31'536'000.0) * 1000));
    } else {
      throw Error(ErrorCode::kInvalidArgument,
                  "there is no option '" + printable(name) +
                      "' of a save; there are layout, durable, checksums, max_block_bytes, "
                      "overwrite, attempt, run and timeout");
    }
  }
  return options;
}

}  // namespace weightstore
