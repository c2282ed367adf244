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

// Finds names that occur twice, in linear time whatever the names are: std::unordered_set hashes without a seed, so
// that the author of a file can choose names that all collide. Names go by number; name_of(number) must give the same
// text for as long as the set lives. Takes at most 16 bytes a name.
template <class NameOf>
class NameSet {
 public:
  // Room for `count` names (below 2^31).
  NameSet(std::size_t count, NameOf name_of) : name_of_(std::move(name_of)) {
    if (count < 2) return;  // one name has nothing to collide with
    std::size_t capacity = 4;
    while (capacity < 2 * count) capacity *= 2;
    slots_.assign(capacity, kFree);
    // Addresses and time are enough of a secret: an attacker writes the file before this process exists.
    seed_ = reinterpret_cast<std::uintptr_t>(slots_.data()) * 0x9E3779B97F4A7C15u ^
            static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }

  // Adds name_of(number), or returns the number under which the same name was added before.
  std::optional<std::size_t> add(std::size_t number) {
    if (slots_.empty()) return std::nullopt;
    const std::string_view name = name_of_(number);
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = hash_name(name, seed_) & mask;
    for (; slots_[slot] != kFree; slot = (slot + 1) & mask) {
      if (std::string_view(name_of_(slots_[slot])) == name) return slots_[slot];
    }
    slots_[slot] = static_cast<std::uint32_t>(number);
    return std::nullopt;
  }

 private:
  static constexpr std::uint32_t kFree = std::numeric_limits<std::uint32_t>::max();

  NameOf name_of_;
  std::vector<std::uint32_t> slots_;
  std::uint64_t seed_ = 0;
};

}  // namespace weightstore
