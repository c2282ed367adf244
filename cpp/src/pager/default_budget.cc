#include "pager/default_budget.h"

#include <algorithm>

#include "io/available_memory.h"
#include "weightstore/pager.h"

namespace weightstore {

static_assert(kUnlimited == io::kUnknownMemory);

std::uint64_t pager::budget_from(std::uint64_t available) {
  if (available == kUnlimited) return kUnlimited;
  constexpr std::uint64_t kLeast = std::uint64_t{256} << 20;
  return available - std::min(std::max(available / 10, kLeast), available / 2);
}

std::optional<std::uint64_t> pager::followed_budget(std::uint64_t budget, std::uint64_t live, std::uint64_t available) {
  std::uint64_t all = 0;
  if (available == kUnlimited || __builtin_add_overflow(live, available, &all)) return std::nullopt;
  const std::uint64_t wanted = budget_from(all);
  const bool shrinks = wanted <= budget - budget / 10;
  const bool grows = wanted > budget && wanted - budget >= budget / 4;
  return shrinks || grows ? std::optional(wanted) : std::nullopt;
}

std::uint64_t automatic_budget() { return pager::budget_from(io::available_memory(io::Swap::kIgnored)); }

}  // namespace weightstore
