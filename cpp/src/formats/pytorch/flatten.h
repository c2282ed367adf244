#pragma once

// From the saved object to names: where its tensors are, and what else it holds that is not plain data.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "formats/pytorch/container.h"
#include "formats/pytorch/work_budget.h"

namespace weightstore::pytorch {

// What a Flattener finds.
class FoundValues {
 public:
  virtual ~FoundValues() = default;
  // A tensor or an array. Returns false when the receiver left it out.
  virtual bool tensor(std::string_view name, Node node) = 0;
  // A value that is not read, of the class or function `type`.
  virtual void left_out(std::string_view name, std::string type, std::string reason) = 0;
};

// Finds all tensors of a tree. Names are the keys on the way, joined by dots: keys of dicts (key_text.h), names of
// attributes, indexes of lists and tuples. A tree that is nothing but a tensor has the name "tensor".
//
// Of an object of an unknown class that is a torch.nn.Module, the Flattener visits the parameters, the persistent
// buffers and the modules inside, as its state_dict() does. Of any other such object it visits only what the object
// holds as a dict or a list; an object that holds nothing so is left out. It reports each of these objects once, under
// the first of its names, and nothing inside an object that it has reported.
class Flattener {
 public:
  // A subtree that several names lead to is visited as often; run() throws kLimit when that gets out of hand. What the
  // receiver keeps of the names is its own to charge.
  Flattener(const PickleTree& tree, const Container& container, FoundValues& found);

  // Reports what it finds in the order of the tree. Throws kUnsupported when the root itself is of an unknown class.
  void run();

  // While a value is reported: how Python gets to it, ['a'][0]['b'].
  std::string subscripts() const;

 private:
  using Texts = ChargedSet<std::string_view>;
  // torch.nn.Module keeps its tensors and modules in three dicts, and the names of buffers that are not saved in a set.
  struct ModuleDicts {
    std::optional<Node> parameters, buffers, modules, transient;
  };
  // A step on the way to a value.
  struct Step {
    bool is_key;
    std::uint64_t number;  // of the key's node, or an index
  };
  // What is below a node: a combination of these.
  static constexpr std::uint8_t kTensor = 1;    // something to visit under a name
  static constexpr std::uint8_t kUnlisted = 2;  // something to leave out that was not reported yet
  static constexpr std::uint8_t kLooked = 4;    // the two above are known

  void walk(Node node);
  void walk_object(Node node);
  void walk_opaque(Node node);
  void walk_entry(Node key, Node value);
  void walk_mapping(Node node, const Texts* left_out = nullptr);
  void walk_given(Node items);
  void walk_sequence(Node node);
  void walk_elements(Node node);
  bool walk_module(Node node);
  // nullptr when the object is no module.
  const ModuleDicts* module_dicts(Node node);
  void descend(std::string_view key, Step step, Node node);

  std::uint8_t look(Node node);
  std::uint8_t find_inside(Node node);
  std::uint8_t find_in_object(Node node);
  std::uint8_t find_in_items(Node node);

  bool is_left_out(Node node);
  void leave_out(Node node, std::string reason);
  // Reports what is left out anywhere below the node, under the name of the value at hand.
  void list_unknown(Node node);
  void list_unknown_of_tensor(Node node);

  const PickleTree& tree_;
  const Container& container_;
  FoundValues& found_;
  ChargedString name_;
  ChargedVector<Step> steps_;
  ChargedVector<std::uint8_t> known_;  // by node
  // By state and by set, which many modules may share: each is gone over once.
  ChargedMap<Node, ModuleDicts> modules_;
  ChargedMap<Node, Texts> transient_;
  WorkBudget work_;
};

}  // namespace weightstore::pytorch
