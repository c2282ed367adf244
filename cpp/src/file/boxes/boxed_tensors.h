#pragma once

// A Reader whose tensors are put together from boxes: tensors of other Readers, each of which is a box of the whole.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weightstore/reader.h"
#include "weightstore/tensor.h"

namespace weightstore {

class BoxedTensors {
 public:
  struct Part {
    Reader reader;
    std::size_t tensor;                // number in the reader's table
    std::vector<std::uint64_t> begin;  // of the box, in elements as `shape` counts them
    std::vector<std::uint64_t> size;
  };

  // `name` is the path that messages give for the whole.
  BoxedTensors(std::string name, const ReadOptions& options);

  // Adds a tensor. `item_bytes` is the size of an element as the shape counts them. A single part that is the whole
  // tensor keeps its place in its file, so that it has a view if its reader has one. Throws Error(kCorrupt) when the
  // boxes overlap, leave the tensor, do not cover it, or have another size than their tensors.
  void add(std::string_view name, DType dtype, const Shape& stored_shape, std::uint64_t item_bytes,
           const std::vector<std::uint64_t>& shape, std::vector<Part> parts);

  // What the checkpoint has beside tensors, for TensorTable::left_out().
  void set_left_out(std::vector<LeftOut> values) { table_.set_left_out(std::move(values)); }

  // The Reader. Reading and verifying compares the checksums of the parts. Throws Error(kCorrupt) when a name was added
  // twice.
  Reader finish() &&;

 private:
  class PartChecksums;

  std::string name_;
  ReadOptions options_;
  TensorTable table_;                                      // each tensor has a source of its own
  std::shared_ptr<std::vector<std::vector<Part>>> parts_;  // by source
  std::uint64_t bytes_ = 0;                                // of all parts
};

}  // namespace weightstore
