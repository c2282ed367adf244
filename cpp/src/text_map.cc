#include "weightstore/text_map.h"

#include <limits>

#include "name_order.h"
#include "weightstore/error.h"

namespace weightstore {

void TextMap::add(std::string_view key, std::string_view value) {
  const std::uint64_t end = std::uint64_t{text_.size()} + key.size() + value.size();
  if (end > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::kLimit, "metadata of more than 4 GiB");
  }
  const auto key_offset = static_cast<std::uint32_t>(text_.size());
  text_ += key;
  const auto value_offset = static_cast<std::uint32_t>(text_.size());
  text_ += value;
  entries_.push_back({key_offset, static_cast<std::uint32_t>(key.size()), value_offset,
                      static_cast<std::uint32_t>(value.size())});
}

std::optional<std::string_view> TextMap::find(std::string_view wanted) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (key(i) == wanted) return value(i);
  }
  return std::nullopt;
}

void TextMap::sort() {
  sort_by_name(entries_, [this](const Entry& entry) { return slice(entry.key_offset, entry.key_length); });
}

std::size_t TextMap::duplicate() const {
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    if (key(i) == key(i - 1)) return i;
  }
  return entries_.size();
}

}  // namespace weightstore
