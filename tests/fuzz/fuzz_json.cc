// JSON: what decodes comes back from its own encoding, and the cursor agrees with the decoder about what is valid.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "bounds.h"
#include "codec/json.h"
#include "fuzzing.h"
#include "weightstore/error.h"

namespace {

using weightstore::Error;
using weightstore::JsonCursor;
using weightstore::Value;

std::optional<Value> decode(std::string_view text) {
  // The smallest text that is nested as deep as the limit.
  static const std::string smallest = std::string(JsonCursor::kMaxDepth, '[') + std::string(JsonCursor::kMaxDepth, ']');
  static Bounds bounds("decode", smallest, weightstore::json_decode);
  try {
    return bounds.run(text.size(), [&] { return weightstore::json_decode(text); });
  } catch (const Error& error) {
    require(error.offset().has_value() && *error.offset() <= text.size());
    return std::nullopt;
  }
}

// The text of the one value in `text`, nullopt when the cursor refuses it.
std::optional<std::string_view> skip(std::string_view text) {
  const auto walk = [](std::string_view whole) {
    JsonCursor cursor(whole);
    const std::string_view value = cursor.skip_value();
    cursor.expect_end();
    return value;
  };
  static Bounds bounds("walk", "0", walk);
  try {
    return bounds.run(text.size(), [&] { return walk(text); });
  } catch (const Error& error) {
    require(error.offset().has_value() && *error.offset() <= text.size());
    return std::nullopt;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::optional<Value> value = decode(text);
  const std::optional<std::string_view> skipped = skip(text);
  if (!value) {
    // The only thing that a decoder refuses and a cursor passes over is a duplicate key.
    require(!skipped || skipped->find('{') != std::string_view::npos);
    return 0;
  }
  require(skipped.has_value() && weightstore::is_utf8(*skipped));
  require(decode(*skipped) == value);
  static Bounds bounds("encode", "0", [](std::string_view) { return weightstore::json_encode(Value(0)); });
  const std::string encoded = bounds.run(size, [&] { return weightstore::json_encode(*value); });
  const std::optional<Value> again = decode(encoded);
  require(again.has_value() && *again == *value);
  require(weightstore::json_encode(*again) == encoded);
  return 0;
}
