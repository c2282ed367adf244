#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

namespace weightstore {

// The numbers 0 to `count` - 1 in ascending order of the bytes of name(number). `count` is below 2^32.
//
// Names share long beginnings and lie all over an arena. Comparing the eight bytes behind what all have in common decides
// most pairs without going there.
template <class NameOf>
std::vector<std::uint32_t> order_by_name(std::size_t count, NameOf name) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), std::uint32_t{0});
  const auto before = [&](std::uint32_t a, std::uint32_t b) { return std::string_view(name(a)) < std::string_view(name(b)); };
  if (std::is_sorted(order.begin(), order.end(), before)) return order;

  const std::string_view first = name(0);
  std::size_t common = first.size();
  for (const std::uint32_t i : order) {
    const std::string_view other = std::string_view(name(i)).substr(0, common);
    common = static_cast<std::size_t>(std::mismatch(other.begin(), other.end(), first.begin()).first - other.begin());
  }
  struct Key {
    std::uint64_t first_bytes;
    std::uint32_t number;
  };
  std::vector<Key> keys;
  keys.reserve(count);
  for (const std::uint32_t i : order) {
    const std::string_view rest = std::string_view(name(i)).substr(common);
    std::uint64_t bytes = 0;
    for (std::size_t k = 0; k < 8; ++k) bytes = bytes << 8 | (k < rest.size() ? static_cast<unsigned char>(rest[k]) : 0u);
    keys.push_back({bytes, i});
  }
  std::sort(keys.begin(), keys.end(), [&](const Key& a, const Key& b) {
    return a.first_bytes != b.first_bytes ? a.first_bytes < b.first_bytes : before(a.number, b.number);
  });
  std::transform(keys.begin(), keys.end(), order.begin(), [](const Key& key) { return key.number; });
  return order;
}

// Puts `items` into the order that order_by_name() gives.
template <class Item, class NameOf>
void sort_by_name(std::vector<Item>& items, NameOf name_of) {
  const auto order = order_by_name(items.size(), [&](std::uint32_t i) { return name_of(items[i]); });
  if (std::is_sorted(order.begin(), order.end())) return;
  std::vector<Item> sorted;
  sorted.reserve(items.size());
  for (const std::uint32_t i : order) sorted.push_back(std::move(items[i]));
  items = std::move(sorted);
}

}  // namespace weightstore
