#pragma once

// From what a pickle says about a tensor to a place in the table.

#include <memory>
#include <optional>
#include <string_view>

#include "formats/charged_table.h"
#include "formats/pytorch/container.h"
#include "formats/pytorch/globals.h"
#include "formats/pytorch/numpy_objects.h"

namespace weightstore::pytorch {

// True when the node is something that torch would rebuild as a tensor, or an array of numpy.
bool is_tensor(const PickleTree& tree, const Container& container, Node node);

// How a tensor is made: the function, and the tuple of its arguments. Many objects may share the arguments. Of a tensor
// that holds others (kRebuildWrapper), `node` is what has its attributes. A tensor of a tar archive is made by no call:
// the kind is kOpaque, and `node` its persistent id.
struct TensorCall {
  GlobalKind kind;
  Node node;
};

// Of a node for which is_tensor() holds and is_array() does not. Throws kUnsupported for tensors that are quantized,
// sparse, nested or without data.
TensorCall tensor_call(const PickleTree& tree, Node node);

// What a tensor has its elements from, if that is another tensor: the tensor of a Parameter, the local part of a
// DTensor. Takes one step of the way. Throws kUnsupported for tensors of an unknown kind, kCorrupt for arguments that
// are none.
std::optional<TensorCall> inner_tensor(const PickleTree& tree, const Container& container, const TensorCall& call);

// Reads a tensor that has no inner_tensor(). Throws kUnsupported for storages and elements that are not read, kCorrupt
// for arguments that are none.
StoredTensor read_tensor(const PickleTree& tree, const Container& container, const TensorCall& call,
                         const Limits& limits);

// Puts tensors into a table.
class TensorPlacer {
 public:
  // Charges `memory` for what the table and its sources take.
  TensorPlacer(std::shared_ptr<const ByteSource> file, bool big_endian, MemoryBudget& memory)
      : table_(file, memory), file_(std::move(file)), big_endian_(big_endian), memory_(memory), widths_(memory) {}

  void place(std::string_view name, const StoredTensor& layout);
  // An array keeps its elements in memory, as a source of its own.
  void place(std::string_view name, PickledArray array);
  // A tensor that was placed before, under another name.
  void place_again(std::string_view name, std::size_t tensor) { table_.add_again(name, tensor); }
  // How many tensors were placed, which is the number of the next one.
  std::size_t size() const { return table_.size(); }
  TensorTable finish() { return table_.finish(); }

 private:
  // In files of the other byte order an untyped storage is turned around by its tensors' types, which must agree.
  void check_width(const StoredTensor& layout, std::uint64_t width);

  ChargedTable table_;
  std::shared_ptr<const ByteSource> file_;
  bool big_endian_;
  MemoryBudget& memory_;
  ChargedVector<std::uint8_t> widths_;  // of untyped storages, by number
};

}  // namespace weightstore::pytorch
