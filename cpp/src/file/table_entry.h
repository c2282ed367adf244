#pragma once

// The metadata entry that says which tensors are blocks of tables; docs/saver.md describes it. In an index the entry is
// a JSON object, in the metadata of a file its text.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "weightstore/table_snapshot.h"
#include "weightstore/tensor.h"
#include "weightstore/value.h"

namespace weightstore {

// A column's name in a file of the plain layout, without its slice: "user.embedding".
std::string plain_key(std::string_view table, std::string_view slot);

// What the entry says it follows: this version of docs/saver.md.
inline constexpr std::uint64_t kPlainVersion = 1;

// True for what weightstore writes under kTablesKey, in whatever version. Others may use the key too.
bool is_table_entry(const Value& value);

// The entry among the metadata of a set or a file; nullopt when there is none, or one of somebody else's. Throws
// Error(kUnsupported) for another version than kPlainVersion.
std::optional<Value> find_table_entry(const TextMap& metadata);

// A tensor that is part of a table's column.
struct TableBlock {
  std::size_t tensor = 0;  // number in the TensorTable
  std::string table;
  std::string slot;
  BucketRange slice;
};

// The tensors that `entry` describes, in the order of their numbers. Throws Error(kCorrupt) for an entry that is
// damaged.
std::vector<TableBlock> find_table_blocks(const Value& entry, const TensorTable& table);

// Collects what is to be said about tables.
class TableDescriptions {
 public:
  void add(const std::string& table, const std::string& slot, const BucketRange& slice);
  bool empty() const { return tables_.empty(); }
  // {"user": {"slots": ["embedding", "id"], "slices": [[0, 1024, 65536]]}}
  Value value() const;

 private:
  struct Table {
    std::set<std::string> slots;
    std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> slices;  // size, begin, end
  };
  std::map<std::string, Table> tables_;
};

// The text of the entry that describes those of the tensors that `metadata` says are blocks of tables. nullopt when
// there are none: because `metadata` has no entry of ours, or the tensors were renamed or left out. What the entry says
// about the files of the save that wrote it is dropped.
std::optional<std::string> table_entry_for(const TextMap& metadata, const TensorTable& table);

}  // namespace weightstore
