#pragma once

// Which names tables, children and slots can have: those that a checkpoint can store.

#include <string_view>

namespace weightstore::table {

// Throw Error(kInvalidArgument) for a name that a checkpoint cannot store. `what` is "a table" or "a child".
void check_table_name(const char* what, std::string_view name);
void check_slot_name(std::string_view name);

}  // namespace weightstore::table
