#include "formats/pytorch/flatten.h"

#include <optional>

#include "formats/pytorch/globals.h"
#include "formats/pytorch/tensors.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

// What a tree of so many nodes may unfold to, when its parts are shared.
constexpr std::uint64_t kSteps = 1u << 16;
constexpr std::uint64_t kStepsPerNode = 16;
constexpr std::uint64_t kNameBytes = 16u << 20;
constexpr std::uint64_t kNameBytesPerByte = 16;

GlobalKind called(const PickleTree& tree, Node object) {
  const Node callable = tree.callable(object);
  return tree.kind(callable) == PickleKind::kGlobal ? kind_of(tree.global_id(callable)) : GlobalKind::kOpaque;
}

// Python 2 gave an OrderedDict its items as an argument; a Counter has them there always.
std::optional<Node> given_items(const PickleTree& tree, Node object) {
  const Node arguments = tree.arguments(object);
  if (tree.kind(arguments) != PickleKind::kTuple || tree.count(arguments) != 1) return std::nullopt;
  return tree.item(arguments, 0);
}

std::optional<Node> state_dict_of(const PickleTree& tree, Node object) {
  auto state = tree.state(object);
  if (!state) return std::nullopt;
  // (__dict__, slots)
  if (tree.kind(*state) == PickleKind::kTuple && tree.count(*state) == 2) state = tree.item(*state, 0);
  if (tree.kind(*state) != PickleKind::kDict) return std::nullopt;
  return state;
}

bool contains_text(const PickleTree& tree, Node set, std::string_view text) {
  if (tree.kind(set) == PickleKind::kObject) {
    const auto given = given_items(tree, set);  // builtins.set([...])
    return given && tree.kind(*given) == PickleKind::kList && contains_text(tree, *given, text);
  }
  auto items = tree.items(set);
  for (Node item; items.next(item);) {
    if (tree.kind(item) == PickleKind::kText && tree.text(item) == text) return true;
  }
  return false;
}

}  // namespace

std::optional<Node> find_key(const PickleTree& tree, Node mapping, std::string_view key) {
  auto items = tree.items(mapping);
  for (Node item; items.next(item);) {
    Node value;
    items.next(value);
    if (tree.kind(item) == PickleKind::kText && tree.text(item) == key) return value;
  }
  return std::nullopt;
}

Flattener::Flattener(const PickleTree& tree, const Container& container, Visit visit)
    : tree_(tree),
      container_(container),
      visit_(std::move(visit)),
      known_(tree.node_count(), 0),
      steps_left_(kSteps + kStepsPerNode * tree.node_count()),
      name_bytes_left_(kNameBytes + kNameBytesPerByte * tree.length()) {}

void Flattener::run() {
  if (is_tensor(tree_, container_, tree_.root())) {
    visit_("tensor", tree_.root());
  } else {
    walk(tree_.root());
  }
}

void Flattener::descend(std::string_view key, Node node) {
  const std::size_t length = name_.size();
  const bool was_root = at_root_;
  if (!at_root_) name_ += '.';
  name_ += key;
  at_root_ = false;
  walk(node);
  name_.resize(length);
  at_root_ = was_root;
}

void Flattener::walk(Node node) {
  if (steps_left_-- == 0) {
    throw Error(ErrorCode::kLimit, "the object repeats its parts so often that it unfolds without measure");
  }
  if (is_tensor(tree_, container_, node)) {
    if (name_.size() > name_bytes_left_)
      throw Error(ErrorCode::kLimit, "names of tensors that are out of all proportion");
    name_bytes_left_ -= name_.size();
    visit_(name_, node);
    return;
  }
  if (!holds_tensor(node)) return;
  switch (tree_.kind(node)) {
    case PickleKind::kDict:
      return walk_mapping(node);
    case PickleKind::kList:
    case PickleKind::kTuple:
      return walk_sequence(node);
    case PickleKind::kObject:
      return walk_object(node);
    default:
      throw Error(ErrorCode::kUnsupported, "a tensor in a set, where it has no name").in_tensor(name_);
  }
}

void Flattener::walk_sequence(Node node) {
  auto items = tree_.items(node);
  std::size_t index = 0;
  for (Node item; items.next(item); ++index) descend(std::to_string(index), item);
}

void Flattener::walk_entry(Node key, Node value) {
  if (tree_.kind(key) == PickleKind::kText) {
    descend(tree_.text(key), value);
  } else if (tree_.kind(key) == PickleKind::kInt) {
    descend(std::to_string(tree_.integer(key)), value);
  } else if (holds_tensor(value)) {
    throw Error(ErrorCode::kUnsupported, "below it is a tensor under a key that is neither text nor an integer")
        .in_tensor(name_);
  }
}

void Flattener::walk_mapping(Node node, const Node* left_out) {
  auto items = tree_.items(node);
  for (Node key; items.next(key);) {
    Node value;
    items.next(value);
    const bool out =
        left_out != nullptr && tree_.kind(key) == PickleKind::kText && contains_text(tree_, *left_out, tree_.text(key));
    if (!out) walk_entry(key, value);
  }
}

// A list of pairs, whose shape check_calls() has seen to.
void Flattener::walk_pairs(Node node) {
  auto pairs = tree_.items(node);
  for (Node pair; pairs.next(pair);) {
    auto parts = tree_.items(pair);
    Node key, value;
    if (parts.next(key) && parts.next(value)) walk_entry(key, value);
  }
}

void Flattener::walk_object(Node node) {
  const GlobalKind kind = called(tree_, node);
  if (kind == GlobalKind::kOpaque && walk_module(node)) return;
  if (kind == GlobalKind::kOrderedDict || kind == GlobalKind::kCounter) {
    if (const auto given = given_items(tree_, node)) {
      if (tree_.kind(*given) == PickleKind::kDict) {
        walk_mapping(*given);
      } else {
        walk_pairs(*given);
      }
    }
  }
  if (tree_.count(node) == 0) return;
  if (tree_.holds_mapping(node)) {
    walk_mapping(node);
  } else {
    walk_sequence(node);
  }
}

// torch.nn.Module keeps its parts in three dicts. False when the object has none of them.
bool Flattener::walk_module(Node node) {
  const auto state = state_dict_of(tree_, node);
  if (!state || !find_key(tree_, *state, "_parameters")) return false;
  const auto transient = find_key(tree_, *state, "_non_persistent_buffers_set");
  for (const char* part : {"_parameters", "_buffers", "_modules"}) {
    const auto found = find_key(tree_, *state, part);
    if (!found || !holds_tensor(*found)) continue;
    if (tree_.kind(*found) == PickleKind::kDict) {
      walk_mapping(*found, std::string_view(part) == "_buffers" && transient ? &*transient : nullptr);
    } else {
      walk_object(*found);  // an OrderedDict, before torch 2.0
    }
  }
  return true;
}

// Whether walk() would find a tensor below the node. The tree is not deep, so that recursion is safe.
bool Flattener::holds_tensor(Node node) {
  if (tree_.kind(node) < PickleKind::kTuple) return false;
  if (known_[node] == 0) known_[node] = find_tensor(node) ? 2 : 1;
  return known_[node] == 2;
}

bool Flattener::find_tensor(Node node) {
  if (is_tensor(tree_, container_, node)) return true;
  if (tree_.kind(node) == PickleKind::kGlobal || tree_.kind(node) == PickleKind::kPersistent) return false;
  if (any_item_holds_tensor(node)) return true;
  if (tree_.kind(node) != PickleKind::kObject) return false;
  const GlobalKind kind = called(tree_, node);
  if (kind == GlobalKind::kOpaque) {
    const auto state = state_dict_of(tree_, node);
    if (!state || !find_key(tree_, *state, "_parameters")) return false;
    for (const char* part : {"_parameters", "_buffers", "_modules"}) {
      const auto found = find_key(tree_, *state, part);
      if (found && holds_tensor(*found)) return true;
    }
    return false;
  }
  const auto given = given_items(tree_, node);
  return given && holds_tensor(*given);
}

bool Flattener::any_item_holds_tensor(Node node) {
  auto items = tree_.items(node);
  for (Node item; items.next(item);) {
    if (holds_tensor(item)) return true;
  }
  return false;
}

}  // namespace weightstore::pytorch
