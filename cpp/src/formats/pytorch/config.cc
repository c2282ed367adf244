#include "formats/pytorch/config.h"

#include <charconv>
#include <cstring>
#include <string>

#include "base/little_endian.h"
#include "base/utf8.h"
#include "formats/pytorch/globals.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

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

  Value global(Node node) {
    if (kind_of(tree_.global_id(node)) != GlobalKind::kDType) return Value();
    return Value("torch." + text(tree_.global_name(node)));
  }

  Value object(Node node) {
    const Node callable = tree_.callable(node);
    if (tree_.kind(callable) != PickleKind::kGlobal) return Value();
    const Node arguments = tree_.arguments(node);
    const std::size_t count = tree_.count(arguments);
    switch (kind_of(tree_.global_id(callable))) {
      case GlobalKind::kOrderedDict:
      case GlobalKind::kCounter:
        return ordered_dict(node, arguments);
      case GlobalKind::kSet:
        return count == 0 ? Value(Value::List()) : convert(tree_.item(arguments, 0));
      case GlobalKind::kSize:
        return convert(tree_.item(arguments, 0));
      case GlobalKind::kComplex:
        return list(arguments);
      case GlobalKind::kDevice: {
        std::string name = text(tree_.text(tree_.item(arguments, 0)));
        if (count == 2) name += ":" + std::to_string(tree_.integer(tree_.item(arguments, 1)));
        return Value(std::move(name));
      }
      case GlobalKind::kEncode:
        return latin1(tree_.text(tree_.item(arguments, 0)));
      case GlobalKind::kByteArray:
        if (count == 0) return Value(Value::Bytes());
        return count == 2 ? latin1(tree_.text(tree_.item(arguments, 0))) : convert(tree_.item(arguments, 0));
      default:
        return Value();
    }
  }

  Value ordered_dict(Node node, Node arguments) {
    const bool has_given = tree_.count(arguments) == 1;
    const bool of_dict = has_given && tree_.kind(tree_.item(arguments, 0)) == PickleKind::kDict;
    const std::size_t given_count = has_given ? tree_.count(tree_.item(arguments, 0)) / (of_dict ? 2 : 1) : 0;
    Value::Map result = map_of(given_count + tree_.count(node) / 2);
    if (has_given) {
      const Node given = tree_.item(arguments, 0);
      if (of_dict) {
        add_items(given, result);
      } else {
        auto pairs = tree_.items(given);
        for (Node pair; pairs.next(pair);) {
          auto parts = tree_.items(pair);
          Node key, value;
          parts.next(key);
          parts.next(value);
          result.emplace_back(convert(key), convert(value));
        }
      }
    }
    add_items(node, result);
    return Value(std::move(result));
  }

  // Text whose characters are the bytes.
  Value latin1(std::string_view view) {
    charge<std::byte>(sizeof(Value::Bytes), view.size());
    Value::Bytes result;
    result.reserve(view.size());
    for (std::size_t i = 0; i < view.size(); ++i) {
      auto c = static_cast<unsigned char>(view[i]);
      if (c >= 0x80) {
        if (c > 0xC3) throw Error(ErrorCode::kCorrupt, "bytes spelled with characters beyond latin-1");
        c = static_cast<unsigned char>((c & 3) << 6 | (static_cast<unsigned char>(view[++i]) & 0x3F));
      }
      result.push_back(static_cast<std::byte>(c));
    }
    return Value(std::move(result));
  }

  const PickleTree& tree_;
  MemoryBudget& memory_;
};

bool key_is(const PickleTree& tree, Node key, std::string_view wanted) {
  if (tree.kind(key) == PickleKind::kText) return tree.text(key) == wanted;
  return tree.kind(key) == PickleKind::kInt && std::to_string(tree.integer(key)) == wanted;
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

std::optional<Node> find_child(const PickleTree& tree, Node node, std::string_view key) {
  const PickleKind kind = tree.kind(node);
  if (kind == PickleKind::kDict) return find_in_mapping(tree, node, key);
  if (kind == PickleKind::kObject) {
    const Node callable = tree.callable(node);
    const Node arguments = tree.arguments(node);
    if (tree.kind(callable) != PickleKind::kGlobal) return std::nullopt;
    const GlobalKind called = kind_of(tree.global_id(callable));
    if (called != GlobalKind::kOrderedDict && called != GlobalKind::kCounter) return std::nullopt;
    if (const auto found = find_in_mapping(tree, node, key)) return found;
    if (tree.count(arguments) != 1) return std::nullopt;
    const Node given = tree.item(arguments, 0);
    return tree.kind(given) == PickleKind::kDict ? find_in_mapping(tree, given, key) : find_in_pairs(tree, given, key);
  }
  if (kind != PickleKind::kList && kind != PickleKind::kTuple) return std::nullopt;
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
  if (error != std::errc() || end != key.data() + key.size()) return std::nullopt;
  auto items = tree.items(node);
  for (Node item; items.next(item); --index) {
    if (index == 0) return item;
  }
  return std::nullopt;
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
