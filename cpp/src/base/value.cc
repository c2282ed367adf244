#include "weightstore/value.h"

namespace weightstore {

const Value* Value::find(std::string_view key) const {
  const Map* map = get_if<Map>();
  if (map == nullptr) return nullptr;
  for (const auto& [name, value] : *map) {
    const std::string* text = name.get_if<std::string>();
    if (text != nullptr && *text == key) return &value;
  }
  return nullptr;
}

}  // namespace weightstore
