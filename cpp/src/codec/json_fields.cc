#include "codec/json_fields.h"

#include "weightstore/error.h"

namespace weightstore {

void fail_field(std::string_view what) {
  throw Error(ErrorCode::kCorrupt, "'" + std::string(what) + "' is missing or not what it should be");
}

const Value& field(const Value& object, std::string_view key) {
  const Value* value = object.find(key);
  if (value == nullptr) fail_field(key);
  return *value;
}

const std::string& text_field(const Value& object, std::string_view key) {
  const auto* text = field(object, key).get_if<std::string>();
  if (text == nullptr) fail_field(key);
  return *text;
}

std::uint64_t as_uint(const Value& value, std::string_view what) {
  if (const auto* large = value.get_if<std::uint64_t>()) return *large;
  const auto* number = value.get_if<std::int64_t>();
  if (number == nullptr || *number < 0) fail_field(what);
  return static_cast<std::uint64_t>(*number);
}

std::uint64_t uint_field(const Value& object, std::string_view key) { return as_uint(field(object, key), key); }

const Value::List& list_field(const Value& object, std::string_view key) {
  const auto* list = field(object, key).get_if<Value::List>();
  if (list == nullptr) fail_field(key);
  return *list;
}

}  // namespace weightstore
