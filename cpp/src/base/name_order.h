#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace weightstore {

// The number of a name, and four of its bytes.
struct NameKey {
  std::uint32_t bytes;
  std::uint32_t number;
};

// Sorts names by four bytes at a time. Names have long common prefixes and are scattered over an arena. A comparison of
// two names would read the same prefixes from there again and again; this class reads each name once per four bytes
// that matter.
template <class NameOf>
class NameSorter {
 public:
  explicit NameSorter(NameOf name) : name_(std::move(name)) {}

  // Sorts keys whose names all have the same first `skip` bytes.
  void sort(std::span<NameKey> keys, std::size_t skip, int depth = 0) {
    if (keys.size() <= kFew || depth == kMaxDepth) return sort_whole(keys);
    const std::size_t common = common_bytes(keys, skip);
    for (NameKey& key : keys) {
      const std::string_view rest = name(key).substr(common);
      key.bytes = 0;
      for (std::size_t k = 0; k < kStep; ++k) {
        key.bytes = key.bytes << 8 | (k < rest.size() ? static_cast<unsigned char>(rest[k]) : 0u);
      }
    }
    std::sort(keys.begin(), keys.end(), [](const NameKey& a, const NameKey& b) { return a.bytes < b.bytes; });
    for (auto first = keys.begin(); first != keys.end();) {
      const auto last = std::find_if(first, keys.end(), [&](const NameKey& key) { return key.bytes != first->bytes; });
      // A zero may mean that the name has ended, or it may be a byte of a longer name: compare the whole names.
      if ((first->bytes & 0xFF) == 0) {
        sort_whole({first, last});
      } else {
        sort({first, last}, common + kStep, depth + 1);
      }
      first = last;
    }
  }

 private:
  static constexpr std::size_t kStep = sizeof(NameKey::bytes);
  static constexpr std::size_t kFew = 8;  // for fewer keys a plain sort is as fast
  static constexpr int kMaxDepth = 64;    // hostile names with long common prefixes must not overflow the stack

  std::string_view name(const NameKey& key) const { return name_(key.number); }

  void sort_whole(std::span<NameKey> keys) const {
    std::sort(keys.begin(), keys.end(), [&](const NameKey& a, const NameKey& b) { return name(a) < name(b); });
  }

  std::size_t common_bytes(std::span<const NameKey> keys, std::size_t known) const {
    const std::string_view first = name(keys.front());
    std::size_t common = first.size();
    for (const NameKey& key : keys) {
      const std::string_view other = name(key).substr(0, common);
      const auto differ = std::mismatch(other.begin() + static_cast<std::ptrdiff_t>(known), other.end(),
                                        first.begin() + static_cast<std::ptrdiff_t>(known));
      common = static_cast<std::size_t>(differ.first - other.begin());
    }
    return common;
  }

  NameOf name_;
};

// Whether the bytes of name(0) to name(count - 1) are in order.
template <class NameOf>
bool are_in_order(std::size_t count, const NameOf& name) {
  const auto text = [&](std::size_t i) { return std::string_view(name(static_cast<std::uint32_t>(i))); };
  for (std::size_t i = 1; i < count; ++i) {
    if (text(i) < text(i - 1)) return false;
  }
  return true;
}

// The numbers 0 to `count` - 1 (below 2^32), sorted by the bytes of name(number). Needs only eight bytes per name, so
// that a header full of short names does not cost many times its size.
template <class NameOf>
std::vector<NameKey> sorted_name_keys(std::size_t count, NameOf name) {
  std::vector<NameKey> keys(count);
  for (std::size_t i = 0; i < count; ++i) keys[i] = {0, static_cast<std::uint32_t>(i)};
  if (!are_in_order(count, name)) NameSorter(name).sort(keys, 0);
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

// Sorts `items` by name_of(item). It moves each item along its cycle of the permutation.
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
