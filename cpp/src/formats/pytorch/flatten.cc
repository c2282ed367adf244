#include "formats/pytorch/flatten.h"

#include <optional>

#include "formats/pytorch/globals.h"
#include "formats/pytorch/tensors.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

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

// Sets may share long texts, so that each text costs its length.
ChargedSet<std::string_view> texts_of(const PickleTree& tree, Node set, WorkBudget& work) {
  ChargedSet<std::string_view> texts(tree.memory());
  if (tree.kind(set) == PickleKind::kObject) {
    const auto given = given_items(tree, set);  // builtins.set([...])
    if (!given || tree.kind(*given) != PickleKind::kList) return texts;
    set = *given;
  }
  ChargedSet<Node> seen(tree.memory());
  auto items = tree.items(set);
  for (Node item; items.next(item);) {
    if (tree.kind(item) != PickleKind::kText || !seen.insert(item).second) continue;
    work.spend(1 + tree.text(item).size());
    texts.insert(tree.text(item));
  }
  return texts;
}

}  // namespace

Flattener::Flattener(const PickleTree& tree, const Container& container, Visit visit)
    : tree_(tree),
      container_(container),
      visit_(std::move(visit)),
      name_(tree.memory()),
      known_(tree.node_count(), 0, tree.memory()),
      modules_(tree.memory()),
      transient_(tree.memory()),
      work_(tree.length()) {}

void Flattener::run() {
  if (is_tensor(tree_, container_, tree_.root())) {
    visit_("tensor", tree_.root());
  } else {
    walk(tree_.root());
  }
}

// A name is made only for what has a tensor inside. A long key may be shared, so that each repetition costs its length.
void Flattener::descend(std::string_view key, Node node) {
  work_.spend();
  if (!holds_tensor(node)) return;
  work_.spend(key.size());
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
  if (is_tensor(tree_, container_, node)) {
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
      throw Error(ErrorCode::kUnsupported, "a tensor in a set, where it has no name").in_tensor(shown_name(name_));
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
  } else if (work_.spend(); holds_tensor(value)) {
    throw Error(ErrorCode::kUnsupported, "below it is a tensor under a key that is neither text nor an integer")
        .in_tensor(shown_name(name_));
  }
}

void Flattener::walk_mapping(Node node, const Texts* left_out) {
  auto items = tree_.items(node);
  for (Node key; items.next(key);) {
    Node value;
    items.next(value);
    if (left_out != nullptr && !left_out->empty() && tree_.kind(key) == PickleKind::kText) {
      work_.spend(tree_.text(key).size());
      if (left_out->contains(tree_.text(key))) continue;
    }
    walk_entry(key, value);
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

const Flattener::ModuleDicts* Flattener::module_dicts(Node node) {
  const auto state = state_dict_of(tree_, node);
  if (!state) return nullptr;
  const auto [known, added] = modules_.try_emplace(*state);
  ModuleDicts& dicts = known->second;
  if (added) {
    auto items = tree_.items(*state);
    for (Node key; items.next(key);) {
      Node value;
      items.next(value);
      if (tree_.kind(key) != PickleKind::kText) continue;
      const std::string_view name = tree_.text(key);
      if (name == "_parameters") dicts.parameters = value;
      if (name == "_buffers") dicts.buffers = value;
      if (name == "_modules") dicts.modules = value;
      if (name == "_non_persistent_buffers_set") dicts.transient = value;
    }
  }
  return dicts.parameters ? &dicts : nullptr;
}

// False when the object is no torch.nn.Module.
bool Flattener::walk_module(Node node) {
  const ModuleDicts* dicts = module_dicts(node);
  if (dicts == nullptr) return false;
  for (const auto& dict : {dicts->parameters, dicts->buffers, dicts->modules}) {
    if (!dict || !holds_tensor(*dict)) continue;
    if (tree_.kind(*dict) != PickleKind::kDict) {
      walk_object(*dict);  // an OrderedDict, before torch 2.0
    } else if (dict == dicts->buffers && dicts->transient) {
      auto texts = transient_.find(*dicts->transient);
      if (texts == transient_.end()) {
        texts = transient_.emplace(*dicts->transient, texts_of(tree_, *dicts->transient, work_)).first;
      }
      walk_mapping(*dict, &texts->second);
    } else {
      walk_mapping(*dict);
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
    const ModuleDicts* dicts = module_dicts(node);
    if (dicts == nullptr) return false;
    for (const auto& dict : {dicts->parameters, dicts->buffers, dicts->modules}) {
      if (dict && holds_tensor(*dict)) return true;
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
