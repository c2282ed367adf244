#include "file/table_entry.h"

#include <functional>
#include <utility>

#include "base/metadata_keys.h"
#include "codec/json.h"
#include "codec/json_fields.h"
#include "file/bucket_range_text.h"
#include "weightstore/error.h"

namespace weightstore {
namespace {

using RangeOrder = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;
RangeOrder order_of(const BucketRange& buckets) { return {buckets.size, buckets.begin, buckets.end}; }

void check_version(const Value& entry) {
  const std::uint64_t version = uint_field(entry, "version");
  if (version == kPlainVersion) return;
  throw Error(ErrorCode::kUnsupported, "was written in version " + std::to_string(version) +
                                           " of the layout, this release reads version " +
                                           std::to_string(kPlainVersion) + "; load it with the release that wrote it");
}

}  // namespace

std::string plain_key(std::string_view table, std::string_view slot) {
  return std::string(table) + "." + std::string(slot);
}

bool is_table_entry(const Value& value) {
  return value.get_if<Value::Map>() != nullptr && (value.find("version") != nullptr || value.find("tables") != nullptr);
}

std::optional<Value> find_table_entry(const TextMap& metadata) {
  const auto text = metadata.find(kTablesKey);
  if (!text) return std::nullopt;
  std::optional<Value> entry;
  try {
    entry = json_decode(*text);
  } catch (const Error&) {
    return std::nullopt;  // text of another program; the JSON of an index was checked already
  }
  if (!is_table_entry(*entry)) return std::nullopt;
  check_version(*entry);
  return entry;
}

// Looks for the column of every block, and not the other way around: an entry may name far more columns and bucket
// ranges than there are blocks.
std::vector<TableBlock> find_table_blocks(const Value& entry, const TensorTable& table) {
  struct Column {
    const std::string* table;
    const std::string* slot;
    const std::set<RangeOrder>* ranges;
  };
  const auto* tables = field(entry, "tables").get_if<Value::Map>();
  if (tables == nullptr) throw Error(ErrorCode::kCorrupt, "'tables' is not an object");
  std::map<std::string, std::set<RangeOrder>> ranges_of;
  std::multimap<std::string, Column, std::less<>> columns;  // by the beginning of the names of their blocks
  for (const auto& [key, description] : *tables) {
    const std::string& name = *key.get_if<std::string>();
    std::set<RangeOrder>& ranges = ranges_of[name];
    for (const Value& item : list_field(description, "slices"))
      ranges.insert(order_of(as_bucket_range(item, "slices")));
    for (const Value& slot : list_field(description, "slots")) {
      const auto* slot_name = slot.get_if<std::string>();
      if (slot_name == nullptr) throw Error(ErrorCode::kCorrupt, "'slots' has something that is no name");
      columns.emplace(plain_key(name, *slot_name), Column{&name, slot_name, &ranges});
    }
  }
  std::vector<TableBlock> blocks;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::string_view name = table.name(i);
    const std::size_t slash = name.rfind('/');
    const auto buckets = slash == std::string_view::npos ? std::nullopt : bucket_range_from_key(name.substr(slash + 1));
    if (!buckets) continue;
    const auto [first, last] = columns.equal_range(name.substr(0, slash));
    for (auto it = first; it != last; ++it) {
      if (!it->second.ranges->contains(order_of(*buckets))) continue;
      blocks.push_back({i, *it->second.table, *it->second.slot, *buckets});
      break;
    }
  }
  return blocks;
}

void TableDescriptions::add(const std::string& table, const std::string& slot, const BucketRange& buckets) {
  Table& description = tables_[table];
  description.slots.insert(slot);
  description.ranges.insert(order_of(buckets));
}

Value TableDescriptions::value() const {
  Value::Map result;
  for (const auto& [name, table] : tables_) {
    Value::List slots(table.slots.begin(), table.slots.end());
    Value::List ranges;
    for (const auto& [size, begin, end] : table.ranges) ranges.push_back(bucket_range_value({begin, end, size}));
    result.emplace_back(name, Value::Map{{"slots", std::move(slots)}, {"slices", std::move(ranges)}});
  }
  return result;
}

std::optional<std::string> table_entry_for(const TextMap& metadata, const TensorTable& table) {
  const auto entry = find_table_entry(metadata);
  if (!entry) return std::nullopt;
  TableDescriptions tables;
  for (const TableBlock& block : find_table_blocks(*entry, table)) tables.add(block.table, block.slot, block.buckets);
  if (tables.empty()) return std::nullopt;
  return json_encode(Value::Map{{"version", kPlainVersion}, {"tables", tables.value()}});
}

}  // namespace weightstore
