#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace weightstore {

// Names share long beginnings and lie all over an arena. The four bytes behind what all have in common decide most pairs
// without going there.
struct NameKey {
  std::uint32_t first_bytes;
  std::uint32_t number;
};

// The numbers 0 to `count` - 1 (below 2^32) in ascending order of the bytes of name(number). Takes eight bytes a name, no
// more: headers of nothing but short names must not cost many times their size.
template <class NameOf>
std::vector<NameKey> sorted_name_keys(std::size_t count, NameOf name) {
  std::vector<NameKey> keys(count);
  for (std::size_t i = 0; i < count; ++i) keys[i] = {0, static_cast<std::uint32_t>(i)};
  const auto before = [&](const NameKey& a, const NameKey& b) {
    if (a.first_bytes != b.first_bytes) return a.first_bytes < b.first_bytes;
    return std::string_view(name(a.number)) < std::string_view(name(b.number));
  };
  if (std::is_sorted(keys.begin(), keys.end(), before)) return keys;

  const std::string_view first = name(0);
  std::size_t common = first.size();
  for (const NameKey& key : keys) {
    const std::string_view other = std::string_view(name(key.number)).substr(0, common);
    common = static_cast<std::size_t>(std::mismatch(other.begin(), other.end(), first.begin()).first - other.begin());
  }
  for (NameKey& key : keys) {
    const std::string_view rest = std::string_view(name(key.number)).substr(common);
    for (std::size_t k = 0; k < 4; ++k) {
      key.first_bytes = key.first_bytes << 8 | (k < rest.size() ? static_cast<unsigned char>(rest[k]) : 0u);
    }
  }
  std::sort(keys.begin(), keys.end(), before);
  return keys;
}

// The same as plain numbers.
template <class NameOf>
std::vector<std::uint32_t> order_by_name(std::size_t count, NameOf name) {
  const std::vector<NameKey> keys = sorted_name_keys(count, name);
  std::vector<std::uint32_t> order(count);
  std::transform(keys.begin(), keys.end(), order.begin(), [](const NameKey& key) { return key.number; });
  return order;
}

// Puts `items` into ascending order of name_of(item), moving each along its cycle of the permutation.
template <class Item, class NameOf>
void sort_by_name(std::vector<Item>& items, NameOf name_of) {
  std::vector<NameKey> keys = sorted_name_keys(items.size(), [&](std::uint32_t i) { return name_of(items[i]); });
  for (std::uint32_t start = 0; start < keys.size(); ++start) {
    if (keys[start].number == start) continue;
    Item displaced = std::move(items[start]);
    std::uint32_t hole = start;
    while (keys[hole].number != start) {
      const std::uint32_t next = std::exchange(keys[hole].number, hole);
      items[hole] = std::move(items[next]);
      hole = next;
    }
    keys[hole].number = hole;
    items[hole] = std::move(displaced);
  }
}

}  // namespace weightstore
