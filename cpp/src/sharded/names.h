#pragma once

// Names that a checkpoint has a place for.

#include <string_view>

namespace weightstore::sharded {

// Throw Error(kInvalidArgument) for names under which nothing could be saved. `what` is "a table" or "a child".
void check_table_name(const char* what, std::string_view name);
void check_slot_name(std::string_view name);

}  // namespace weightstore::sharded
