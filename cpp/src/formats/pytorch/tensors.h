#pragma once

// From what a pickle says about a tensor to a place in the table.

#include <memory>
#include <string_view>

#include "formats/charged_table.h"
#include "formats/pytorch/container.h"
#include "formats/pytorch/numpy_objects.h"

namespace weightstore::pytorch {

// True when the node is something that torch would rebuild as a tensor, or an array of numpy.
bool is_tensor(const PickleTree& tree, const Container& container, Node node);

// Reads the tensor at `node`, for which is_tensor() holds and is_array() does not. Of a DTensor, that is its local
// part. Throws kUnsupported for tensors that are quantized, sparse, nested, without data or of an unknown kind,
// kCorrupt for arguments that are none and elements outside of the storage.
StoredTensor read_tensor(const PickleTree& tree, const Container& container, Node node, const Limits& limits);

// Makes the table of a file.
class TensorPlacer {
 public:
  // Charges `memory` for what the table and its sources take.
  TensorPlacer(std::shared_ptr<const ByteSource> file, bool big_endian, MemoryBudget& memory)
      : table_(file, memory), file_(std::move(file)), big_endian_(big_endian), memory_(memory), widths_(memory) {}

  void place(std::string_view name, const StoredTensor& layout);
  // An array keeps its elements in memory, as a source of its own.
  void place(std::string_view name, PickledArray array);
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
