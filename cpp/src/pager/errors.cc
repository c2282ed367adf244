#include <string>
#include <utility>

#include "weightstore/pager.h"

namespace weightstore {
namespace {

constexpr std::size_t kNamed = 8;

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kNamed; ++i) {
    text += (i == 0 ? "'" : ", '") + printable(names[i]) + "'";
  }
  if (names.size() > kNamed) text += " and " + std::to_string(names.size() - kNamed) + " more";
  return text;
}

std::string why_no_room(std::uint64_t needed, std::uint64_t budget, std::uint64_t live,
                        const std::vector<std::string>& holders) {
  std::string text = "needs " + std::to_string(needed) + " bytes of a strict budget of " + std::to_string(budget);
  if (needed > budget) return text + "; it can never fit: raise the budget";
  text += ", of which " + std::to_string(live) + " are in use";
  if (!holders.empty()) text += " by " + list_of(holders);
  return text + "; release or unpin some of them, or raise the budget";
}

}  // namespace

OffloadEof::OffloadEof(std::uint64_t offset, std::uint64_t needed, std::uint64_t available, std::string_view more)
    : Error(ErrorCode::kIo, "needed " + std::to_string(needed) + " bytes, but only " + std::to_string(available) +
                                " are there" + std::string(more)),
      needed_(needed),
      available_(available) {
  at_offset(offset);
}

BudgetExceeded::BudgetExceeded(std::uint64_t needed, std::uint64_t budget, std::uint64_t live,
                               std::vector<std::string> holders)
    : Error(ErrorCode::kLimit, why_no_room(needed, budget, live, holders)),
      needed_(needed),
      budget_(budget),
      holders_(std::move(holders)) {}

}  // namespace weightstore
