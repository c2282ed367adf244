#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/name_hash.h"

namespace weightstore {

// Finds names that occur twice. Takes linear time even for hostile names: std::unordered_set has no secret seed, so the
// author of a file could choose names that all collide. Names are given by number; name_of(number) must return the same
// text while the set lives. Needs at most 16 bytes per name.
template <class NameOf>
class NameSet {
 public:
  // Makes room for `count` names (below 2^31).
  NameSet(std::size_t count, NameOf name_of) : name_of_(std::move(name_of)) {
    if (count < 2) return;  // one name has nothing to collide with
    std::size_t capacity = 4;
    while (capacity < 2 * count) capacity *= 2;
    cells_.assign(capacity, kFree);
    // An address and the time are secret enough: an attacker writes the file before this process exists.
    seed_ = reinterpret_cast<std::uintptr_t>(cells_.data()) * 0x9E3779B97F4A7C15u ^
            static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }

  // Adds name_of(number). If the same name was added before, returns its number instead.
  std::optional<std::size_t> add(std::size_t number) {
    if (cells_.empty()) return std::nullopt;
    const std::string_view name = name_of_(number);
    const std::size_t mask = cells_.size() - 1;
    std::size_t cell = hash_name(name, seed_) & mask;
    for (; cells_[cell] != kFree; cell = (cell + 1) & mask) {
      if (std::string_view(name_of_(cells_[cell])) == name) return cells_[cell];
    }
    cells_[cell] = static_cast<std::uint32_t>(number);
    return std::nullopt;
  }

 private:
  static constexpr std::uint32_t kFree = std::numeric_limits<std::uint32_t>::max();

  NameOf name_of_;
  std::vector<std::uint32_t> cells_;
  std::uint64_t seed_ = 0;
};

}  // namespace weightstore
