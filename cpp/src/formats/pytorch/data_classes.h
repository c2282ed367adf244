#pragma once

// The classes and functions that are plain data: which arguments each takes, and where an object of it keeps what it
// holds. globals.h has their names.

#include <optional>
#include <string>

#include "codec/pickle_vm.h"
#include "formats/pytorch/globals.h"

namespace weightstore::pytorch {

// How an object holds other values.
enum class Holds : std::uint8_t {
  kNothing,     // it is one value, such as a date
  kMapping,     // keys and values: the items of the object, and those of given_items()
  kSequence,    // values by number: the items of the object, and those of given_items()
  kElements,    // values without a name: the items of given_items()
  kAttributes,  // the keys and values of attributes_of()
};
Holds holds(GlobalKind kind);

// The items that an object got as an argument: a dict or a list of pairs for a mapping, a list or a tuple for a
// sequence or a set. nullopt when there are none.
std::optional<PickleTree::Node> given_items(const PickleTree& tree, PickleTree::Node object);

// The dict of an object's attributes, which BUILD sets; nullopt when there is none.
std::optional<PickleTree::Node> attributes_of(const PickleTree& tree, PickleTree::Node object);

// What the file calls the class of an object, or the function that makes it, such as "mine.Thing". Also the name of a
// global. Long names are cut.
std::string type_name(const PickleTree& tree, PickleTree::Node node);

// Throws kCorrupt when a call in the tree has arguments that the called class or function does not take. Tensors and
// arrays are left to whoever reads them.
void check_calls(const PickleTree& tree);

}  // namespace weightstore::pytorch
