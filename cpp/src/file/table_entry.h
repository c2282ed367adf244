#pragma once

// The metadata entry that says which tensors are blocks of tables. docs/saver.md describes it. In an index the entry is
// a JSON object; in the metadata of a file it is the text of that object.

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

// The name of a column in a file of the plain layout, without its buckets: "user.embedding".
std::string plain_key(std::string_view table, std::string_view slot);

// The version of the plain layout that this release reads and writes.
inline constexpr std::uint64_t kPlainVersion = 1;

// True for an entry that weightstore wrote, in any version. Other programs may use the key for something else.
bool is_table_entry(const Value& value);

// The entry in the metadata of a set or a file; nullopt when weightstore wrote none. Throws Error(kUnsupported) for
// another version than kPlainVersion.
std::optional<Value> find_table_entry(const TextMap& metadata);

// A tensor that is a block of a column.
struct TableBlock {
  std::size_t tensor = 0;  // number in the TensorTable
  std::string table;
  std::string slot;
  BucketRange buckets;
};

// The tensors that `entry` describes, in the order of their numbers. Throws Error(kCorrupt) for a damaged entry.
std::vector<TableBlock> find_table_blocks(const Value& entry, const TensorTable& table);

// Collects the tables that an entry describes.
class TableDescriptions {
 public:
  void add(const std::string& table, const std::string& slot, const BucketRange& buckets);
  bool empty() const { return tables_.empty(); }
  // {"user": {"slots": ["embedding", "id"], "slices": [[0, 1024, 65536]]}}
  Value value() const;

 private:
  struct Table {
    std::set<std::string> slots;
    std::set<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>> ranges;  // size, begin, end
  };
  std::map<std::string, Table> tables_;
};

// The text of a new entry for the blocks of tables in `table`, according to the entry in `metadata`. nullopt when there
// are none: `metadata` has no entry of weightstore, or the blocks were renamed or left out. The new entry does not
// describe the files of the save.
std::optional<std::string> table_entry_for(const TextMap& metadata, const TensorTable& table);

}  // namespace weightstore
