#pragma once

// A Reader whose tensors are put together from the tensors of another Reader. A checkpoint keeps a column of a table in
// blocks; assembled, the column is one tensor with a name of its own.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/reader.h"
#include "weightstore/tensor.h"

namespace weightstore {

// Which tensors of the Reader of the parts a tensor consists of.
using PartNumbers = std::vector<std::size_t>;

class AssembledTensors {
 public:
  // `parts` has the tensors that others are made of. The sections of its checksums are tensors. `name` is the path that
  // messages give for a tensor of several parts.
  AssembledTensors(Reader parts, std::string name);

  // Adds a tensor whose bytes are those of `numbers`, tensors of the parts, one after the other. There is at least one.
  void add(std::string_view name, std::span<const std::uint64_t> shape, PartNumbers numbers);

  // Adds a tensor whose parts are boxes: `begins` says where each of them begins. Throws Error(kCorrupt) if they have
  // other types, or do not cover the tensor.
  void add_boxes(std::string_view name, std::span<const std::uint64_t> shape, PartNumbers numbers,
                 std::span<const Shape> begins);

  // The Reader. Metadata and options are those of the parts. Reading and verifying compares the checksums of the parts,
  // which errors name. Throws Error(kCorrupt) when a name was added twice.
  Reader finish() &&;

 private:
  class PartChecksums;

  // A tensor of several parts.
  struct Joined {
    PartNumbers numbers;
    bool is_in_order;  // the bytes of the parts lie one after the other in the tensor
  };

  Reader parts_;
  std::string name_;
  TensorTable table_;  // its first sources are those of the parts; a joined source for each entry of joined_ follows
  std::vector<Joined> joined_;
};

}  // namespace weightstore
