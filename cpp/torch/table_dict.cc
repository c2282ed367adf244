#include "table_dict.h"

#include "weightstore/error.h"

namespace weightstore::torch_bridge {

std::vector<std::shared_ptr<weightstore::HashTable>> core_tables(const TableDict& tables) {
  std::vector<std::shared_ptr<weightstore::HashTable>> core;
  for (const auto& entry : tables) {
    const std::string key = printable(entry.key());
    const c10::intrusive_ptr<HashTable>& table = entry.value();
    if (!table) throw Error(ErrorCode::kInvalidArgument, "hashtables['" + key + "'] is None; expected a HashTable");
    if (entry.key() != table->name()) {
      const std::string name = printable(table->name());
      throw Error(ErrorCode::kInvalidArgument, "hashtables['" + key + "'] is a table called '" + name +
                                                   "'; a checkpoint knows it by that name, so pass it as hashtables['" +
                                                   name + "']");
    }
    core.push_back(table->core());
  }
  return core;
}

}  // namespace weightstore::torch_bridge
