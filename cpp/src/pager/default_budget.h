#pragma once

// Budgets that go by the available memory.

#include <chrono>
#include <cstdint>
#include <optional>

namespace weightstore::pager {

// automatic_budget() for so much available memory.
std::uint64_t budget_from(std::uint64_t available);

// The budget that a pager should have now, when it uses `live` bytes and has `budget`, and when so much memory is
// available beside that. nullopt when the difference is too small to matter: memory that comes and goes must not make
// the pager evict and read the same tensors again and again.
std::optional<std::uint64_t> followed_budget(std::uint64_t budget, std::uint64_t live, std::uint64_t available);

// How often a pager looks.
inline constexpr auto kLookInterval = std::chrono::seconds(1);

}  // namespace weightstore::pager
