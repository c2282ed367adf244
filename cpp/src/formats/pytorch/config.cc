#include "formats/pytorch/config.h"

#include <charconv>
#include <cstring>
#include <string>

#include "base/little_endian.h"
#include "base/utf8.h"
#include "formats/pytorch/data_classes.h"
#include "formats/pytorch/dates.h"
#include "formats/pytorch/globals.h"
#include "formats/pytorch/key_text.h"
#include "formats/pytorch/numpy_objects.h"
#include "formats/pytorch/pickled_bytes.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

constexpr std::uint64_t kPathPart = 64;

class Converter {
 public:
  explicit Converter(const PickleTree& tree) : tree_(tree), memory_(tree.memory()) {}

  Value convert(Node node) {
    switch (tree_.kind(node)) {
      case PickleKind::kNone:
      case PickleKind::kPersistent:
        return Value();
      case PickleKind::kBool:
        return Value(tree_.boolean(node));
      case PickleKind::kInt:
        return Value(tree_.integer(node));
      case PickleKind::kBigInt:
        return big_integer(tree_.text(node));
      case PickleKind::kFloat:
        return Value(tree_.number(node));
      case PickleKind::kText:
        return Value(text(tree_.text(node)));
      case PickleKind::kBytes:
        return bytes(tree_.text(node));
      case PickleKind::kTuple:
      case PickleKind::kList:
      case PickleKind::kSet:
      case PickleKind::kFrozenSet:
        return list(node);
      case PickleKind::kDict:
        return mapping(node);
      case PickleKind::kGlobal:
        return global(node);
      case PickleKind::kObject:
        return object(node);
    }
    return Value();
  }

 private:
  // What a Value keeps on the heap: `object`, unless it is empty, and `count` elements of it.
  template <class Element>
  void charge(std::size_t object, std::size_t count) {
    if (count > 0) memory_.take(MemoryBudget::heap_bytes(object) + MemoryBudget::heap_bytes(count * sizeof(Element)));
  }

  std::string text(std::string_view view) {
    std::string result;
    const bool inside = view.size() <= result.capacity();  // short text needs no block of its own
    memory_.take(MemoryBudget::heap_bytes(sizeof(result)) + (inside ? 0 : MemoryBudget::heap_bytes(view.size() + 1)));
    result = view;
    return result;
  }

  Value bytes(std::string_view view) {
    charge<std::byte>(sizeof(Value::Bytes), view.size());
    Value::Bytes result(view.size());
    if (!view.empty()) std::memcpy(result.data(), view.data(), view.size());
    return Value(std::move(result));
  }

  // Nine bytes with a leading zero are what 64 bits without a sign need.
  static Value big_integer(std::string_view digits) {
    if (digits.size() == 9 && digits[8] == 0) return Value(load_little_endian(digits.substr(0, 8)));
    throw Error(ErrorCode::kUnsupported, "an integer of " + std::to_string(digits.size()) + " bytes");
  }

  Value list(Node node) {
    Value::List result;
    charge<Value>(sizeof(result), tree_.count(node));
    result.reserve(tree_.count(node));
    auto items = tree_.items(node);
    for (Node item; items.next(item);) result.push_back(convert(item));
    return Value(std::move(result));
  }

  // All items that will ever be added.
  Value::Map map_of(std::size_t count) {
    Value::Map result;
    charge<Value::Map::value_type>(sizeof(result), count);
    result.reserve(count);
    return result;
  }

  void add_items(Node node, Value::Map& result) {
    auto items = tree_.items(node);
    for (Node key; items.next(key);) {
      Node value;
      items.next(value);
      result.emplace_back(convert(key), convert(value));
    }
  }

  Value mapping(Node node) {
    Value::Map result = map_of(tree_.count(node) / 2);
    add_items(node, result);
    return Value(std::move(result));
  }

  // A type, such as torch.float32 or int, by its name.
  Value global(Node node) {
    const GlobalKind kind = kind_of(tree_.global_id(node));
    if (kind != GlobalKind::kDType && kind != GlobalKind::kConstant) return Value();
    const std::string_view module = tree_.global_module(node);
    const bool is_builtin = module == "builtins" || module == "__builtin__";
    return Value(is_builtin ? text(tree_.global_name(node))
                            : std::string(module) + "." + text(tree_.global_name(node)));
  }

  Value object(Node node) {
    const Node arguments = tree_.arguments(node);
    const std::size_t count = tree_.count(arguments);
    const GlobalKind kind = called_kind(tree_, node);
    switch (kind) {
      case GlobalKind::kOpaque:  // a class of its own that is a dict or a list
        if (tree_.count(node) == 0) return Value();
        return tree_.holds_mapping(node) ? mapping(node) : list(node);
      case GlobalKind::kDevice: {
        std::string name = text(tree_.text(tree_.item(arguments, 0)));
        if (count == 2) name += ":" + std::to_string(tree_.integer(tree_.item(arguments, 1)));
        return Value(std::move(name));
      }
      case GlobalKind::kEncode:
      case GlobalKind::kByteArray: {
        const auto pickled = PickledBytes::of(tree_, node);
        if (!pickled) return Value();
        return bytes(pickled->read(memory_));
      }
      case GlobalKind::kPath:
      case GlobalKind::kWindowsPath:
        // Paths may share their parts. The charge for a part bounds the time, too.
        memory_.take(kPathPart * count);
        memory_.take(MemoryBudget::heap_bytes(sizeof(std::string)) +
                     MemoryBudget::heap_bytes(path_length(tree_, node)));
        return Value(path_text(tree_, node));
      case GlobalKind::kDateTime:
      case GlobalKind::kDate:
      case GlobalKind::kTime: {
        const auto date = date_text(tree_, node);
        return date ? Value(text(*date)) : Value();
      }
      case GlobalKind::kTimeDelta:
        return Value(seconds_of(tree_, node));
      case GlobalKind::kTimeZone:
        return Value(text(offset_text(tree_, node)));
      case GlobalKind::kTextClass:
        return Value(text(tree_.text(tree_.item(arguments, 0))));
      case GlobalKind::kNumpyType:
        return Value(text(numpy_type_name(tree_, node)));
      case GlobalKind::kNumpyScalar:
        charge<Value>(sizeof(Value::List), 2);  // of a complex number
        return numpy_number(tree_, node).value_or(Value());
      default:
        return container(kind, node);
    }
  }

  Value container(GlobalKind kind, Node node) {
    const auto given = given_items(tree_, node);
    switch (holds(kind)) {
      case Holds::kMapping:
        return filled_mapping(node, given);
      case Holds::kSequence:
      case Holds::kElements:
        return list(given && tree_.count(*given) > 0 ? *given : node);
      case Holds::kAttributes: {
        const auto attributes = attributes_of(tree_, node);
        return attributes ? mapping(*attributes) : Value(Value::Map());
      }
      case Holds::kNothing:
        break;
    }
    return Value();
  }

  Value filled_mapping(Node node, std::optional<Node> given) {
    const bool of_dict = given && tree_.kind(*given) == PickleKind::kDict;
    const std::size_t given_count = given ? tree_.count(*given) / (of_dict ? 2 : 1) : 0;
    Value::Map result = map_of(given_count + tree_.count(node) / 2);
    if (of_dict) {
      add_items(*given, result);
    } else if (given) {
      auto pairs = tree_.items(*given);
      for (Node pair; pairs.next(pair);) {
        auto parts = tree_.items(pair);
        Node key, value;
        parts.next(key);
        parts.next(value);
        result.emplace_back(convert(key), convert(value));
      }
    }
    add_items(node, result);
    return Value(std::move(result));
  }

  const PickleTree& tree_;
  MemoryBudget& memory_;
};

bool key_is(const PickleTree& tree, Node key, std::string_view wanted) {
  if (tree.kind(key) == PickleKind::kText) return tree.text(key) == wanted;
  return key_text(tree, key) == wanted;
}

std::optional<Node> find_in_pairs(const PickleTree& tree, Node list, std::string_view key) {
  auto pairs = tree.items(list);
  for (Node pair; pairs.next(pair);) {
    auto parts = tree.items(pair);
    Node name, value;
    if (parts.next(name) && parts.next(value) && key_is(tree, name, key)) return value;
  }
  return std::nullopt;
}

std::optional<Node> find_in_mapping(const PickleTree& tree, Node node, std::string_view key) {
  auto items = tree.items(node);
  for (Node name; items.next(name);) {
    Node value;
    items.next(value);
    if (key_is(tree, name, key)) return value;
  }
  return std::nullopt;
}

std::optional<Node> find_index(const PickleTree& tree, Node node, std::string_view key) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
  if (error != std::errc() || end != key.data() + key.size()) return std::nullopt;
  auto items = tree.items(node);
  for (Node item; items.next(item); --index) {
    if (index == 0) return item;
  }
  return std::nullopt;
}

std::optional<Node> find_in_object(const PickleTree& tree, Node node, std::string_view key) {
  const GlobalKind kind = called_kind(tree, node);
  if (kind == GlobalKind::kOpaque) {
    return tree.holds_mapping(node) ? find_in_mapping(tree, node, key) : find_index(tree, node, key);
  }
  const auto given = given_items(tree, node);
  switch (holds(kind)) {
    case Holds::kMapping:
      if (const auto found = find_in_mapping(tree, node, key)) return found;
      if (!given) return std::nullopt;
      return tree.kind(*given) == PickleKind::kDict ? find_in_mapping(tree, *given, key)
                                                    : find_in_pairs(tree, *given, key);
    case Holds::kAttributes: {
      const auto attributes = attributes_of(tree, node);
      return attributes ? find_in_mapping(tree, *attributes, key) : std::nullopt;
    }
    case Holds::kSequence:
      return find_index(tree, given && tree.count(*given) > 0 ? *given : node, key);
    default:
      return std::nullopt;
  }
}

std::optional<Node> find_child(const PickleTree& tree, Node node, std::string_view key) {
  switch (tree.kind(node)) {
    case PickleKind::kDict:
      return find_in_mapping(tree, node, key);
    case PickleKind::kObject:
      return find_in_object(tree, node, key);
    case PickleKind::kList:
    case PickleKind::kTuple:
      return find_index(tree, node, key);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<Node> find_path(const PickleTree& tree, Node node, std::string_view key) {
  if (const auto whole = find_child(tree, node, key)) return whole;
  for (std::size_t dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.', dot + 1)) {
    const auto child = find_child(tree, node, key.substr(0, dot));
    if (!child) continue;
    if (const auto found = find_path(tree, *child, key.substr(dot + 1))) return found;
  }
  return std::nullopt;
}

Value to_value(const PickleTree& tree, Node node) { return Converter(tree).convert(node); }

}  // namespace weightstore::pytorch
