#include "formats/pytorch/flatten.h"

#include <optional>

#include "formats/pytorch/data_classes.h"
#include "formats/pytorch/dates.h"
#include "formats/pytorch/globals.h"
#include "formats/pytorch/key_text.h"
#include "formats/pytorch/numpy_objects.h"
#include "formats/pytorch/tensors.h"
#include "weightstore/error.h"

namespace weightstore::pytorch {
namespace {

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

bool is_unknown_object(const PickleTree& tree, Node node) {
  return tree.kind(node) == PickleKind::kObject && called_kind(tree, node) == GlobalKind::kOpaque;
}

// A number or a date of a known class that has no plain form, such as text of numpy, or a date in a zone of an unknown
// class.
bool is_odd_value(const PickleTree& tree, Node object) {
  switch (called_kind(tree, object)) {
    case GlobalKind::kNumpyScalar:
      return !numpy_number(tree, object);
    case GlobalKind::kDateTime:
    case GlobalKind::kDate:
    case GlobalKind::kTime:
      return !date_text(tree, object);
    default:
      return false;
  }
}

// Of an object with items: whether it has anything else, which nobody reads.
bool has_more(const PickleTree& tree, Node object) {
  return tree.state(object) || tree.count(tree.arguments(object)) > 0;
}

}  // namespace

Flattener::Flattener(const PickleTree& tree, const Container& container, FoundValues& found)
    : tree_(tree),
      container_(container),
      found_(found),
      name_(tree.memory()),
      steps_(tree.memory()),
      known_(tree.node_count(), 0, tree.memory()),
      modules_(tree.memory()),
      transient_(tree.memory()),
      work_(tree.length()) {}

void Flattener::run() {
  const Node root = tree_.root();
  if (is_left_out(root)) {
    throw Error(ErrorCode::kUnsupported, "the file is one object of '" + printable(type_name(tree_, root)) +
                                             "', which is no tensor or plain data; nothing of it was run. Save its "
                                             "tensors instead, for example its state_dict()");
  }
  if (is_tensor(tree_, container_, root)) {
    if (found_.tensor("tensor", root)) list_unknown_of_tensor(root);
  } else {
    walk(root);
  }
}

std::string Flattener::subscripts() const {
  constexpr std::size_t kEnough = 256;  // for a message
  std::string text;
  for (const Step& step : steps_) {
    if (text.size() > kEnough) return text + "...";
    const bool is_key = step.is_key;
    text +=
        "[" + (is_key ? printable(key_repr(tree_, static_cast<Node>(step.number))) : std::to_string(step.number)) + "]";
  }
  return text;
}

// ---- what is below a node ------------------------------------------------------------------------------------------

// The tree is not deep, so that recursion is safe. Every node is looked at once.
std::uint8_t Flattener::look(Node node) {
  if (tree_.kind(node) < PickleKind::kTuple) return 0;
  if (known_[node] == 0) known_[node] = kLooked | find_inside(node);
  return known_[node] & (kTensor | kUnlisted);
}

std::uint8_t Flattener::find_inside(Node node) {
  if (is_left_out(node)) return kUnlisted;
  if (is_tensor(tree_, container_, node)) {
    // Attributes of a tensor are arguments of the call.
    return kTensor | (tree_.kind(node) == PickleKind::kObject ? look(tree_.arguments(node)) : 0);
  }
  switch (tree_.kind(node)) {
    case PickleKind::kObject:
      return find_in_object(node);
    case PickleKind::kPersistent:
    case PickleKind::kGlobal:
      return 0;
    default:
      return find_in_items(node);
  }
}

std::uint8_t Flattener::find_in_object(Node node) {
  if (is_unknown_object(tree_, node)) {
    const ModuleDicts* dicts = module_dicts(node);
    if (dicts == nullptr) return find_in_items(node) | (has_more(tree_, node) ? kUnlisted : 0);
    std::uint8_t inside = 0;
    for (const auto& dict : {dicts->parameters, dicts->buffers, dicts->modules}) {
      if (dict) inside |= look(*dict);
    }
    return inside;
  }
  std::uint8_t inside = find_in_items(node) | look(tree_.arguments(node));
  if (const auto state = tree_.state(node)) inside |= look(*state);
  return inside;
}

std::uint8_t Flattener::find_in_items(Node node) {
  std::uint8_t inside = 0;
  auto items = tree_.items(node);
  for (Node item; items.next(item);) inside |= look(item);
  return inside;
}

// ---- what is left out ----------------------------------------------------------------------------------------------

bool Flattener::is_left_out(Node node) {
  switch (tree_.kind(node)) {
    case PickleKind::kGlobal:
      return kind_of(tree_.global_id(node)) == GlobalKind::kOpaque;
    case PickleKind::kPersistent:
      return !is_tensor(tree_, container_, node);
    case PickleKind::kObject:
      if (is_odd_value(tree_, node)) return true;
      return is_unknown_object(tree_, node) && tree_.count(node) == 0 && module_dicts(node) == nullptr;
    default:
      return false;
  }
}

void Flattener::leave_out(Node node, std::string reason) {
  work_.spend();
  found_.left_out(name_, type_name(tree_, node), std::move(reason));
}

void Flattener::list_unknown(Node node) {
  if ((look(node) & kUnlisted) == 0) return;
  known_[node] &= static_cast<std::uint8_t>(~kUnlisted);
  if (tree_.kind(node) == PickleKind::kGlobal) return leave_out(node, "a class or function");
  if (tree_.kind(node) == PickleKind::kPersistent) return leave_out(node, "a class with its source code");
  if (tree_.kind(node) == PickleKind::kObject) {
    if (is_odd_value(tree_, node)) return leave_out(node, "a value of a type or form that is not understood");
    if (is_unknown_object(tree_, node)) return leave_out(node, "an object of a class that is not known as plain data");
    list_unknown(tree_.arguments(node));
    if (const auto state = tree_.state(node)) list_unknown(*state);
  }
  auto items = tree_.items(node);
  for (Node item; items.next(item);) list_unknown(item);
}

// The class of a tensor is not a value that is left out: the tensor is read without it.
void Flattener::list_unknown_of_tensor(Node node) {
  if (tree_.kind(node) != PickleKind::kObject) return;
  const Node arguments = tree_.arguments(node);
  if (called_kind(tree_, node) != GlobalKind::kRebuildFromType) return list_unknown(arguments);
  if (tree_.count(arguments) != 4) return;
  const Node function = tree_.item(arguments, 0);
  const bool is_wrapper =
      tree_.kind(function) == PickleKind::kGlobal && kind_of(tree_.global_id(function)) == GlobalKind::kRebuildWrapper;
  if (!is_wrapper) list_unknown(tree_.item(arguments, 2));
  list_unknown(tree_.item(arguments, 3));
}

// ---- names ---------------------------------------------------------------------------------------------------------

// A name is made only for what has something to report inside. A long key may be shared, so that each repetition costs
// its length.
void Flattener::descend(std::string_view key, Step step, Node node) {
  work_.spend();
  if (look(node) == 0) return;
  work_.spend(key.size());
  const std::size_t length = name_.size();
  if (!steps_.empty()) name_ += '.';
  name_ += key;
  steps_.push_back(step);
  walk(node);
  steps_.pop_back();
  name_.resize(length);
}

void Flattener::walk(Node node) {
  if (look(node) == 0) return;
  if (is_tensor(tree_, container_, node)) {
    if (found_.tensor(name_, node)) list_unknown_of_tensor(node);
  } else if (is_left_out(node)) {
    list_unknown(node);
  } else {
    switch (tree_.kind(node)) {
      case PickleKind::kDict:
        walk_mapping(node);
        break;
      case PickleKind::kList:
      case PickleKind::kTuple:
        walk_sequence(node);
        break;
      case PickleKind::kObject:
        walk_object(node);
        break;
      default:
        walk_elements(node);
    }
  }
  // All of it was reported. What has no tensor inside is not gone over again.
  known_[node] &= static_cast<std::uint8_t>(~kUnlisted);
}

void Flattener::walk_sequence(Node node) {
  auto items = tree_.items(node);
  std::uint64_t index = 0;
  for (Node item; items.next(item); ++index) descend(std::to_string(index), {false, index}, item);
}

// The elements of a set have no names.
void Flattener::walk_elements(Node node) {
  auto items = tree_.items(node);
  for (Node item; items.next(item);) {
    work_.spend();
    if ((look(item) & kTensor) != 0) {
      found_.left_out(name_, "set", "a tensor in a set, where it has no name; save a list instead");
    }
    list_unknown(item);
  }
}

void Flattener::walk_entry(Node key, Node value) {
  if ((look(key) & kTensor) != 0) {
    found_.left_out(name_, "dict", "a tensor that is the key of a dict, where it has no name");
  }
  list_unknown(key);
  if (tree_.kind(key) == PickleKind::kText) return descend(tree_.text(key), {true, key}, value);
  work_.spend();
  if (look(value) == 0) return;
  if (const auto text = key_text(tree_, key)) return descend(*text, {true, key}, value);
  work_.spend(kMaxKeyText);
  if ((look(value) & kTensor) != 0) {
    found_.left_out(name_, "dict",
                    "below it is a tensor under a key that makes no name: neither text, a number, a "
                    "bool, None, bytes nor a short tuple of those");
  }
  list_unknown(value);
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

// Of a mapping: a dict, or a list of pairs, whose shape check_calls() has seen to.
void Flattener::walk_given(Node given) {
  if (tree_.kind(given) == PickleKind::kDict) return walk_mapping(given);
  auto pairs = tree_.items(given);
  for (Node pair; pairs.next(pair);) {
    auto parts = tree_.items(pair);
    Node key, value;
    if (parts.next(key) && parts.next(value)) walk_entry(key, value);
  }
}

void Flattener::walk_object(Node node) {
  const GlobalKind kind = called_kind(tree_, node);
  if (kind == GlobalKind::kOpaque) return walk_opaque(node);
  const auto given = given_items(tree_, node);
  switch (holds(kind)) {
    case Holds::kMapping:
      if (given) walk_given(*given);
      walk_mapping(node);
      break;
    case Holds::kAttributes:
      if (const auto attributes = attributes_of(tree_, node)) walk_mapping(*attributes);
      break;
    case Holds::kSequence:
      walk_sequence(given && tree_.count(*given) > 0 ? *given : node);
      break;
    case Holds::kElements:
      if (given) walk_elements(*given);
      break;
    case Holds::kNothing:
      break;
  }
  // What else a class was made of: a default factory, attributes of a dict.
  list_unknown(tree_.arguments(node));
  if (const auto state = tree_.state(node)) list_unknown(*state);
}

// A module, or an object of a class that is a dict or a list.
void Flattener::walk_opaque(Node node) {
  if (walk_module(node)) return;
  if (tree_.holds_mapping(node)) {
    walk_mapping(node);
  } else {
    walk_sequence(node);
  }
  if ((known_[node] & kUnlisted) != 0 && has_more(tree_, node)) {
    leave_out(node, "its items are read, but not its arguments and attributes");
  }
}

// ---- modules -------------------------------------------------------------------------------------------------------

const Flattener::ModuleDicts* Flattener::module_dicts(Node node) {
  const auto state = attributes_of(tree_, node);
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
    if (!dict || look(*dict) == 0) continue;
    if (tree_.kind(*dict) != PickleKind::kDict) {
      walk(*dict);  // an OrderedDict, before torch 2.0
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

}  // namespace weightstore::pytorch
