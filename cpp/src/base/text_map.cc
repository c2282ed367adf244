#include "weightstore/text_map.h"

#include <algorithm>
#include <limits>

#include "base/name_order.h"
#include "weightstore/error.h"

namespace weightstore {

void TextMap::add(std::string_view key, std::string_view value) {
  const std::uint64_t end = std::uint64_t{text_.size()} + key.size() + value.size();
  if (end > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::kLimit, "metadata of more than 4 GiB");
  }
  entries_.push_back({static_cast<std::uint32_t>(text_.size()), static_cast<std::uint32_t>(key.size()),
                      static_cast<std::uint32_t>(value.size())});
  text_ += key;
  text_ += value;
}

std::optional<std::string_view> TextMap::find(std::string_view wanted) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (key(i) == wanted) return value(i);
  }
  return std::nullopt;
}

void TextMap::sort() {
  const auto key_of = [this](const Entry& entry) { return key(entry); };
  // Among so many keys so short there are duplicates; they are not worth memory for sorting faster.
  if (text_.size() < 4 * entries_.size()) {
    std::sort(entries_.begin(), entries_.end(), [&](const Entry& a, const Entry& b) { return key_of(a) < key_of(b); });
  } else {
    sort_by_name(entries_, key_of);
  }
}

std::size_t TextMap::duplicate() const {
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    if (key(i) == key(i - 1)) return i;
  }
  return entries_.size();
}

}  // namespace weightstore
