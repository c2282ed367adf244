#pragma once

// From the saved object to names: where its tensors are, and what else it holds.

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "formats/pytorch/container.h"
#include "formats/pytorch/work_budget.h"

namespace weightstore::pytorch {

// Finds all tensors of a tree. Names are the keys on the way, joined by dots: keys of dicts (text, or integers in
// decimal), indexes of lists and tuples. A tree that is nothing but a tensor has the name "tensor". Of an opaque object
// that is a torch.nn.Module the parameters, the persistent buffers and the modules inside are visited, as its
// state_dict() does; of any other one only what it holds as a dict or a list.
class Flattener {
 public:
  using Visit = std::function<void(std::string_view name, Node tensor)>;

  // `visit` is called for each name, in the order of the tree. A subtree that several names lead to is visited as
  // often; throws kLimit when that gets out of hand. What `visit` keeps of the names is its own to charge.
  Flattener(const PickleTree& tree, const Container& container, Visit visit);
  void run();

 private:
  using Texts = ChargedSet<std::string_view>;
  // torch.nn.Module keeps its tensors and modules in three dicts, and the names of buffers that are not saved in a set.
  struct ModuleDicts {
    std::optional<Node> parameters, buffers, modules, transient;
  };

  void walk(Node node);
  void walk_object(Node node);
  void walk_entry(Node key, Node value);
  void walk_mapping(Node node, const Texts* left_out = nullptr);
  void walk_pairs(Node node);
  void walk_sequence(Node node);
  bool walk_module(Node node);
  // nullptr when the object is no module.
  const ModuleDicts* module_dicts(Node node);
  void descend(std::string_view key, Node node);
  bool holds_tensor(Node node);
  bool find_tensor(Node node);
  bool any_item_holds_tensor(Node node);

  const PickleTree& tree_;
  const Container& container_;
  const Visit visit_;
  ChargedString name_;
  bool at_root_ = true;
  ChargedVector<std::uint8_t> known_;  // by node: 0 unknown, 1 no tensor inside, 2 some
  // By state and by set, which many modules may share: each is gone over once.
  ChargedMap<Node, ModuleDicts> modules_;
  ChargedMap<Node, Texts> transient_;
  WorkBudget work_;
};

}  // namespace weightstore::pytorch
