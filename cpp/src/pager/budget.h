#pragma once

#include <cstdint>

namespace weightstore::pager {

// `available` less a reserve of a tenth, 256 MiB at least and a half at most.
std::uint64_t budget_from(std::uint64_t available);

}  // namespace weightstore::pager
