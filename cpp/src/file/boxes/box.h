#pragma once

// Boxes: a range of indices in every dimension of a tensor. What one process has of a distributed tensor is a box,
// whether the tensor is sharded by rows, by columns, or by both.

#include <cstdint>
#include <span>
#include <vector>

#include "base/strided/strided_reader.h"
#include "weightstore/dtype.h"

namespace weightstore {

struct TensorBox {
  std::uint64_t item_bytes = 1;      // of an element: 1 to 16
  std::vector<std::uint64_t> shape;  // of the whole tensor
  std::vector<std::uint64_t> begin;  // the first index in every dimension
  std::vector<std::uint64_t> size;   // the number of indices in every dimension
};

// A box of a tensor of this type and shape. Elements of less than a byte are counted in bytes along the last dimension.
// Throws Error(kInvalidArgument) where the box does not begin and end on whole bytes, and for types with blocks.
TensorBox box_of(DType dtype, std::span<const std::uint64_t> shape, std::span<const std::uint64_t> begin,
                 std::span<const std::uint64_t> size);

// Where the bytes of a box lie among the bytes of its tensor, both in row-major order: runs of equal length, in
// ascending order.
class BoxRuns {
 public:
  // Throws Error(kInvalidArgument) for a box that leaves its tensor, and for a tensor of more than 2^62 bytes.
  explicit BoxRuns(const TensorBox& box);

  std::uint64_t tensor_bytes() const { return tensor_bytes_; }
  std::uint64_t bytes() const { return run_bytes_ * run_count_; }
  std::uint64_t run_bytes() const { return run_bytes_; }
  std::uint64_t run_count() const { return run_count_; }
  // Where a run begins in the tensor.
  std::uint64_t offset_of(std::uint64_t run) const;
  // The number of runs, from the first on, whose offset satisfies `before`.
  template <class Before>
  std::uint64_t count_while(const Before& before) const {
    std::uint64_t low = 0;
    std::uint64_t high = run_count_;
    while (low < high) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (before(offset_of(middle))) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
  // The box in a source where the tensor begins at `begin`.
  StridedElements elements(std::uint64_t begin) const;

 private:
  struct Dim {
    std::uint64_t count;
    std::uint64_t stride;  // in bytes
  };
  std::vector<Dim> dims_;  // of the runs, outermost first
  std::uint64_t first_ = 0;
  std::uint64_t run_bytes_ = 0;
  std::uint64_t run_count_ = 0;
  std::uint64_t tensor_bytes_ = 0;
};

}  // namespace weightstore
