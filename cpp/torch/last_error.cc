#include "last_error.h"

#include <optional>

#include "base/utf8.h"
#include "codec/json.h"

namespace weightstore::torch_bridge {
namespace {

thread_local std::optional<Error> last;
thread_local bool last_is_no_data = false;

// Paths and names are bytes; JSON is text.
Value text(const std::string& bytes) { return is_utf8(bytes) ? Value(bytes) : Value(printable(bytes)); }

}  // namespace

void remember(const Error& error) {
  last = error;
  last_is_no_data = dynamic_cast<const NoDataError*>(&error) != nullptr;
}

std::string last_error() {
  if (!last) return "{}";
  Value::Map map = {{"code", std::string(last_is_no_data ? "no_data" : to_string(last->code()))},
                    {"format", std::string(to_string(last->format()))},
                    {"text", text(last->what())},
                    {"message", text(last->message())},
                    {"errno", last->os_errno()}};
  if (!last->path().empty()) map.emplace_back("path", text(last->path()));
  if (!last->tensor().empty()) map.emplace_back("tensor", text(last->tensor()));
  if (last->offset()) map.emplace_back("offset", *last->offset());
  return json_encode(map);
}

}  // namespace weightstore::torch_bridge
