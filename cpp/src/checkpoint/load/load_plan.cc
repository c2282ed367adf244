#include "checkpoint/load/load_plan.h"

#include <map>
#include <set>
#include <utility>

#include "codec/json.h"
#include "weightstore/error.h"

namespace weightstore::checkpoint {
namespace {

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string type_text(DType dtype, const Shape& shape) { return std::string(name_of(dtype)) + " " + shape_text(shape); }

const Value::Map& require_map(const Value& value) {
  const auto* map = value.get_if<Value::Map>();
  if (map == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                "the load info is {destination: {source: [columns]}}, as default_load_info() "
                "gives it");
  }
  return *map;
}

class Planner {
 public:
  Planner(const CheckpointIndex& index, std::span<const std::shared_ptr<HashTable>> tables,
          std::span<const LoadTarget> tensors)
      : index_(index) {
    for (const auto& table : tables) {
      for (std::size_t child = 0; child < table->children().size(); ++child) {
        children_.emplace(table->children()[child], std::pair(table.get(), child));
        wanted_.insert(table->children()[child] + "@id");
        for (const SlotInfo& slot : table->slots()) wanted_.insert(table->children()[child] + "@" + slot.name);
      }
    }
    for (const LoadTarget& tensor : tensors) {
      dense_.emplace(tensor.name, &tensor);
      wanted_.insert(tensor.name);
    }
  }

  LoadPlan plan(std::string_view info, bool strict) {
    const Value value = json_decode(info);
    for (const auto& [key, sources] : require_map(value)) {
      const std::string& destination = *key.get_if<std::string>();
      const Value::Map& map = require_map(sources);
      if (map.size() != 1) {
        mismatched_.push_back(quoted(destination) + " needs exactly one source, not " + std::to_string(map.size()));
        continue;
      }
      const std::string& source = *map.front().first.get_if<std::string>();
      const auto* columns = map.front().second.get_if<Value::List>();
      if (columns == nullptr) require_map(Value());
      const auto child = children_.find(destination);
      const auto tensor = dense_.find(destination);
      if (child != children_.end()) {
        add_table(destination, *child->second.first, child->second.second, source, *columns);
      } else if (tensor != dense_.end()) {
        add_dense(*tensor->second, source);
      } else {
        mismatched_.push_back(quoted(destination) + " is none of the targets");
      }
    }
    refuse(strict);
    return std::move(plan_);
  }

 private:
  void add_dense(const LoadTarget& target, const std::string& name) {
    wanted_.insert(name);
    const CheckpointTensor* source = index_.find(name);
    if (source == nullptr) {
      missing_.push_back(name);
    } else if (source->dtype != target.dtype || source->shape != target.whole()) {
      mismatched_.push_back(quoted(name) + " in " + file_of(*source) + " is " +
                            type_text(source->dtype, source->shape) + ", its target " +
                            type_text(target.dtype, target.whole()));
    } else {
      plan_.dense.push_back({&target, source, name});
    }
  }

  void add_table(const std::string& destination, HashTable& table, std::size_t child, const std::string& source,
                 const Value::List& columns) {
    TableLoad load{&table, child, index_.find(source + "@id"), {}};
    wanted_.insert(source + "@id");
    const std::vector<SlotInfo> slots = table.slots();
    for (const SlotInfo& slot : slots) wanted_.insert(source + "@" + slot.name);  // also those that were filtered out
    std::set<std::string> asked;
    for (const Value& column : columns) {
      const auto* name = column.get_if<std::string>();
      if (name == nullptr) {
        mismatched_.push_back(quoted(destination) + " lists a column that is not a name");
      } else if (asked.insert(*name).second && *name != "id") {
        add_slot(load, slots, destination, source, *name);
      }
    }
    if (!asked.contains("id")) {
      mismatched_.push_back(quoted(destination) + " is loaded without its column 'id', which says whose rows they are");
    } else if (load.ids == nullptr) {
      missing_.push_back(source + "@id");
    } else if (check_blocks(load)) {
      plan_.tables.push_back(std::move(load));
    }
  }

  void add_slot(TableLoad& load, const std::vector<SlotInfo>& slots, const std::string& destination,
                const std::string& source, const std::string& name) {
    const std::string full = source + "@" + name;
    const auto number = load.table->find_slot(name);
    if (!number) {
      mismatched_.push_back(quoted(destination) + " has no slot " + quoted(name));
      return;
    }
    const SlotInfo& slot = slots[*number];
    const CheckpointTensor* column = index_.find(full);
    if (column == nullptr) {
      missing_.push_back(full);
      return;
    }
    const Shape row_shape(column->shape.begin() + (column->shape.empty() ? 0 : 1), column->shape.end());
    if (!column->is_column() || column->dtype != slot.dtype || !same_row_shape(row_shape, slot.shape)) {
      mismatched_.push_back(quoted(full) + " in " + file_of(*column) + " has rows of " +
                            type_text(column->dtype, row_shape) + ", its target " + type_text(slot.dtype, slot.shape));
      return;
    }
    load.slots.push_back({*number, slot.row_bytes, column, full});
  }

  bool same_row_shape(const Shape& saved, const Shape& target) const {
    const auto one_number = [](const Shape& shape) { return shape.empty() || shape == Shape{1}; };
    return saved == target || (index_.takes_one_for_scalar() && one_number(saved) && one_number(target));
  }

  // Every slot must have the same blocks as the ids, with the same rows.
  bool check_blocks(const TableLoad& load) {
    for (const TableLoad::Slot& slot : load.slots) {
      bool same = slot.source->blocks.size() == load.ids->blocks.size();
      for (std::size_t i = 0; same && i < load.ids->blocks.size(); ++i) {
        same = slot.source->blocks[i].buckets == load.ids->blocks[i].buckets &&
               slot.source->blocks[i].rows == load.ids->blocks[i].rows;
      }
      if (same) continue;
      mismatched_.push_back(quoted(slot.name) + " does not have the same buckets and rows as the ids of its table");
      return false;
    }
    return true;
  }

  std::string file_of(const CheckpointTensor& tensor) const {
    const TensorTable& table = index_.reader().table();
    return printable(table.sources()[table.source_of(tensor.blocks.front().tensor)]->name());
  }

  void refuse(bool strict) const {
    std::string text;
    const auto list = [&](const char* title, const std::vector<std::string>& items) {
      if (items.empty()) return;
      text += (text.empty() ? "" : "; ") + std::string(title);
      for (std::size_t i = 0; i < items.size(); ++i) text += (i > 0 ? ", " : " ") + items[i];
    };
    list("mismatched:", mismatched_);
    if (strict) {
      list("missing in the checkpoint:", all_quoted(missing_));
      std::vector<std::string> unexpected;
      for (const auto& [name, tensor] : index_.tensors()) {
        if (!wanted_.contains(name)) unexpected.push_back(name);
      }
      list("unexpected in the checkpoint:", all_quoted(unexpected));
    }
    if (text.empty()) return;
    throw Error(mismatched_.empty() ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument,
                "the checkpoint does not fit the targets of the load: " + text);
  }

  static std::string quoted(const std::string& name) { return "'" + printable(name) + "'"; }

  static std::vector<std::string> all_quoted(const std::vector<std::string>& names) {
    std::vector<std::string> result;
    for (const std::string& name : names) result.push_back(quoted(name));
    return result;
  }

  const CheckpointIndex& index_;
  std::map<std::string, std::pair<HashTable*, std::size_t>> children_;
  std::map<std::string, const LoadTarget*> dense_;
  std::set<std::string, std::less<>> wanted_;  // the names of all targets, whether they are loaded or were filtered out
  std::vector<std::string> missing_;
  std::vector<std::string> mismatched_;
  LoadPlan plan_;
};

}  // namespace

LoadPlan plan_load(const CheckpointIndex& index, std::span<const std::shared_ptr<HashTable>> tables,
                   std::span<const LoadTarget> tensors, std::string_view info, bool strict) {
  return Planner(index, tables, tensors).plan(info, strict);
}

std::string default_info(std::span<const std::shared_ptr<HashTable>> tables, std::span<const LoadTarget> tensors) {
  Value::Map info;
  for (const auto& table : tables) {
    for (const std::string& child : table->children()) {
      Value::List columns = {"id"};
      for (const SlotInfo& slot : table->slots()) columns.emplace_back(slot.name);
      info.emplace_back(child, Value::Map{{child, std::move(columns)}});
    }
  }
  for (const LoadTarget& tensor : tensors) info.emplace_back(tensor.name, Value::Map{{tensor.name, Value::List()}});
  return json_encode(info);
}

}  // namespace weightstore::checkpoint
