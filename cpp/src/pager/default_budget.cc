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

std::uint64_t automatic_budget() { return pager::budget_from(io::available_memory(io::Swap::kIgnored)); }

}  // namespace weightstore
