#pragma once

// The tables and tensors that TorchScript passes to a Saver or Loader, by name.

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "hash_table.h"

namespace weightstore::torch_bridge {

using TableDict = c10::Dict<std::string, c10::intrusive_ptr<HashTable>>;
using TensorDict = c10::Dict<std::string, at::Tensor>;

// The tables in the dictionary's order. A checkpoint knows a table by its own name (a coalesced one by the names of its
// children), so that a key must be the table's name: otherwise throws Error(kInvalidArgument) naming both.
std::vector<std::shared_ptr<weightstore::HashTable>> core_tables(const TableDict& tables);

}  // namespace weightstore::torch_bridge
