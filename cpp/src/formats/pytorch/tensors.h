#pragma once

// From what a pickle says about a tensor to a place in the table.

#include <memory>
#include <string_view>

#include "formats/pytorch/container.h"

namespace weightstore::pytorch {

// True when the node is something that torch would rebuild as a tensor.
bool is_tensor(const PickleTree& tree, const Container& container, Node node);

// Reads the tensor at `node`, for which is_tensor() holds. Throws kUnsupported for tensors that are quantized, sparse,
// nested or without data, kCorrupt for arguments that are none and elements outside of the storage.
TensorLayout read_tensor(const PickleTree& tree, const Container& container, Node node, const Limits& limits);

// Adds tensors to a table whose source 0 is the file.
class TensorPlacer {
 public:
  // Charges `memory` for what the table and its sources take.
  TensorPlacer(TensorTable& table, std::shared_ptr<const ByteSource> file, bool big_endian, MemoryBudget& memory)
      : table_(table), file_(std::move(file)), big_endian_(big_endian), memory_(memory), widths_(memory) {}

  void place(std::string_view name, const TensorLayout& layout);
  // Ends the table.
  void finish();

 private:
  void add(const TensorTable::Row& tensor);
  // In files of the other byte order an untyped storage is turned around by its tensors' types, which must agree.
  void check_width(const TensorLayout& layout, std::uint64_t width);

  TensorTable& table_;
  std::shared_ptr<const ByteSource> file_;
  bool big_endian_;
  MemoryBudget& memory_;
  std::uint64_t longest_name_ = 0;
  std::uint64_t table_bytes_ = 0;       // what the table is charged with
  ChargedVector<std::uint8_t> widths_;  // of untyped storages, by number
};

}  // namespace weightstore::pytorch
