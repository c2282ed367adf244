#pragma once

// From what a pickle says about a tensor to a place in the table.

#include <memory>
#include <string_view>
#include <vector>

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
  TensorPlacer(TensorTable& table, std::shared_ptr<const ByteSource> file, bool big_endian)
      : table_(table), file_(std::move(file)), big_endian_(big_endian) {}

  void place(std::string_view name, const TensorLayout& layout);

 private:
  // In files of the other byte order an untyped storage is turned around by its tensors' types, which must agree.
  void check_width(const TensorLayout& layout, std::uint64_t width);

  TensorTable& table_;
  std::shared_ptr<const ByteSource> file_;
  bool big_endian_;
  std::vector<std::uint8_t> widths_;  // of untyped storages, by number
};

}  // namespace weightstore::pytorch
