#pragma once

// The parts of a saved object that are plain data.

#include <string_view>

#include "formats/pytorch/container.h"
#include "weightstore/value.h"

namespace weightstore::pytorch {

// The node that `key` leads to (keys and indexes joined by dots), or nullopt. A key that has dots itself is found, too.
std::optional<Node> find_path(const PickleTree& tree, Node node, std::string_view key);

// A node as a tree of its own; see read_config(). Charges the tree's budget for it, as long as the budget lives. Throws
// kLimit when shared parts make it unfold to more than that allows, and kUnsupported for integers of more than 64 bits.
Value to_value(const PickleTree& tree, Node node);

}  // namespace weightstore::pytorch
