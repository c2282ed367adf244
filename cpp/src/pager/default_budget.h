#pragma once

// How much of the available memory a pager takes when its user does not say.

#include <cstdint>

namespace weightstore::pager {

// `available` minus a reserve. The reserve is a tenth of it, but at least 256 MiB and at most a half.
std::uint64_t budget_from(std::uint64_t available);

}  // namespace weightstore::pager
