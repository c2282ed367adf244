#include "formats/pytorch/data_classes.h"

#include <string_view>

#include "formats/pytorch/container.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

bool is_pair(const PickleTree& tree, Node node) {
  const PickleKind kind = tree.kind(node);
  return (kind == PickleKind::kTuple || kind == PickleKind::kList) && tree.count(node) == 2;
}

// Python 2 made an OrderedDict of a list of pairs, Python 3 makes an empty one. `seen` are lists and tuples that were
// gone over.
bool is_list_of_pairs(const PickleTree& tree, Node node, ChargedSet<Node>& seen) {
  if (tree.kind(node) != PickleKind::kList) return false;
  if (!seen.insert(node).second) return true;
  auto items = tree.items(node);
  for (Node item; items.next(item);) {
    if (!is_pair(tree, item)) return false;
  }
  return true;
}

bool is_latin1(const PickleTree& tree, Node node) {
  if (tree.kind(node) != PickleKind::kText) return false;
  const std::string_view text = tree.text(node);
  return text == "latin1" || text == "latin-1";
}

// The arguments of one call.
class Arguments {
 public:
  Arguments(const PickleTree& tree, Node tuple) : tree_(tree), tuple_(tuple), count_(tree.count(tuple)) {}

  Node tuple() const { return tuple_; }
  std::size_t count() const { return count_; }
  Node operator[](std::size_t i) const { return tree_.item(tuple_, i); }

  bool is(std::size_t i, PickleKind kind) const { return i < count_ && tree_.kind((*this)[i]) == kind; }
  bool is_called(std::size_t i, GlobalKind kind) const {
    return is(i, PickleKind::kObject) && called_kind(tree_, (*this)[i]) == kind;
  }
  // Bytes, or the call by which protocol 2 spells them.
  bool is_bytes(std::size_t i) const {
    return is(i, PickleKind::kBytes) || is_called(i, GlobalKind::kEncode) || is_called(i, GlobalKind::kByteArray);
  }
  bool is_bytes_or_str(std::size_t i) const { return is_bytes(i) || is(i, PickleKind::kText); }  // Python 2
  bool is_encoded() const { return count_ == 2 && is(0, PickleKind::kText) && is_latin1(tree_, (*this)[1]); }
  bool all(PickleKind kind) const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (!is(i, kind)) return false;
    }
    return true;
  }

 private:
  const PickleTree& tree_;
  const Node tuple_;
  const std::size_t count_;
};

bool takes(const PickleTree& tree, GlobalKind kind, const Arguments& given, ChargedSet<Node>& seen) {
  const std::size_t count = given.count();
  switch (kind) {
    case GlobalKind::kOrderedDict:
      return count == 0 || (count == 1 && is_list_of_pairs(tree, given[0], seen));
    case GlobalKind::kCounter:
      return count == 0 || (count == 1 && given.is(0, PickleKind::kDict));
    case GlobalKind::kDefaultDict:  // the factory
      return count <= 1;
    case GlobalKind::kNamespace:
      return count == 0;
    case GlobalKind::kDeque:  // items, the largest number of them
      return count == 0 || given.is(0, PickleKind::kTuple) || given.is(0, PickleKind::kList);
    case GlobalKind::kSet:
      return count == 0 || (count == 1 && given.is(0, PickleKind::kList));
    case GlobalKind::kByteArray:
      return count == 0 || given.is_encoded() || (count == 1 && given.is_bytes(0));
    case GlobalKind::kEncode:
      return given.is_encoded();
    case GlobalKind::kComplex:
      return count == 2 && given.all(PickleKind::kFloat);
    case GlobalKind::kSlice:
      return count == 3;
    case GlobalKind::kPath:
    case GlobalKind::kWindowsPath:
      return !seen.insert(given.tuple()).second || given.all(PickleKind::kText);
    case GlobalKind::kDateTime:
    case GlobalKind::kTime:  // with or without a time zone
      return (count == 1 || count == 2) && given.is_bytes_or_str(0);
    case GlobalKind::kDate:
      return count == 1 && given.is_bytes_or_str(0);
    case GlobalKind::kTimeDelta:
      return count <= 3 && given.all(PickleKind::kInt);
    case GlobalKind::kTimeZone:  // the offset, perhaps a name
      return given.is_called(0, GlobalKind::kTimeDelta) &&
             (count == 1 || (count == 2 && given.is(1, PickleKind::kText)));
    case GlobalKind::kTextClass:
      return count == 1 && given.is(0, PickleKind::kText);
    case GlobalKind::kSize:
      return count == 1 && given.is(0, PickleKind::kTuple);
    case GlobalKind::kDevice:
      return given.is(0, PickleKind::kText) && (count == 1 || (count == 2 && given.is(1, PickleKind::kInt)));
    case GlobalKind::kLayout:
      return count == 1 && given.is(0, PickleKind::kText);
    case GlobalKind::kNumpyType:
      return count >= 1 && given.is(0, PickleKind::kText);
    case GlobalKind::kNumpyScalar:
      return count == 2 && given.is_called(0, GlobalKind::kNumpyType);
    default:
      return true;
  }
}

// Of an object, what was called. Protocols 0 and 1 call copyreg._reconstructor with the class.
Node class_of(const PickleTree& tree, Node object) {
  const Node callable = tree.callable(object);
  const Node arguments = tree.arguments(object);
  if (tree.kind(callable) != PickleKind::kGlobal || tree.global_name(callable) != "_reconstructor") return callable;
  const bool has_class = tree.count(arguments) != 0 && tree.kind(tree.item(arguments, 0)) == PickleKind::kGlobal;
  return has_class ? tree.item(arguments, 0) : callable;
}

}  // namespace

Holds holds(GlobalKind kind) {
  switch (kind) {
    case GlobalKind::kOrderedDict:
    case GlobalKind::kCounter:
    case GlobalKind::kDefaultDict:
      return Holds::kMapping;
    case GlobalKind::kNamespace:
      return Holds::kAttributes;
    case GlobalKind::kDeque:
    case GlobalKind::kSize:
    case GlobalKind::kComplex:
    case GlobalKind::kSlice:
      return Holds::kSequence;
    case GlobalKind::kSet:
      return Holds::kElements;
    default:
      return Holds::kNothing;
  }
}

std::optional<Node> given_items(const PickleTree& tree, Node object) {
  const Node arguments = tree.arguments(object);
  switch (called_kind(tree, object)) {
    case GlobalKind::kComplex:
    case GlobalKind::kSlice:
      return arguments;
    case GlobalKind::kOrderedDict:
    case GlobalKind::kCounter:
    case GlobalKind::kDeque:
    case GlobalKind::kSet:
    case GlobalKind::kSize:
      if (tree.count(arguments) > 0) return tree.item(arguments, 0);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<Node> attributes_of(const PickleTree& tree, Node object) {
  auto state = tree.state(object);
  if (!state) return std::nullopt;
  // (__dict__, slots)
  if (tree.kind(*state) == PickleKind::kTuple && tree.count(*state) == 2) state = tree.item(*state, 0);
  if (tree.kind(*state) != PickleKind::kDict) return std::nullopt;
  return state;
}

std::string type_name(const PickleTree& tree, Node node) {
  while (tree.kind(node) == PickleKind::kObject) node = class_of(tree, node);
  if (tree.kind(node) != PickleKind::kGlobal) return "a class that the file has as source code";
  const std::string_view module = shown_name(tree.global_module(node));
  return std::string(module) + "." + std::string(shown_name(tree.global_name(node)));
}

void check_calls(const PickleTree& tree) {
  ChargedSet<Node> seen(tree.memory());
  for (std::size_t i = 0; i < tree.node_count(); ++i) {
    const auto node = static_cast<Node>(i);
    if (tree.kind(node) != PickleKind::kObject) continue;
    const Node callable = tree.callable(node);
    if (tree.kind(callable) != PickleKind::kGlobal) continue;
    if (takes(tree, kind_of(tree.global_id(callable)), Arguments(tree, tree.arguments(node)), seen)) continue;
    throw Error(ErrorCode::kCorrupt, "arguments that " + printable(tree.global_module(callable)) + "." +
                                         printable(tree.global_name(callable)) + " does not take");
  }
}

}  // namespace weightstore::pytorch
