#include "table/names.h"

#include <string>

#include "base/utf8.h"
#include "weightstore/error.h"

namespace weightstore::table {

void check_table_name(const char* what, std::string_view name) {
  if (name.empty()) throw Error(ErrorCode::kInvalidArgument, std::string(what) + " needs a name");
  if (is_utf8(name)) return;
  throw Error(ErrorCode::kInvalidArgument,
              std::string(what) + " cannot be named '" + printable(name) + "': the name is not UTF-8");
}

// "<table>@<slot>" is split at its last '@'.
void check_slot_name(std::string_view name) {
  if (!name.empty() && name != "id" && name.find('@') == std::string_view::npos && is_utf8(name)) return;
  throw Error(ErrorCode::kInvalidArgument, "a slot cannot be named '" + printable(name) +
                                               "': in a checkpoint 'id' is the column of ids, '@' separates table and "
                                               "slot, and names are UTF-8 of at least one letter");
}

}  // namespace weightstore::table
