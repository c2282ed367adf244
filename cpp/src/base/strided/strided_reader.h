#pragma once

// Reads of arrays whose elements do not lie in the order, or in the byte order, in which they are wanted: transposed
// (Fortran order), sliced, repeated, reversed, big-endian, conjugated or negated.

#include <cstdint>
#include <vector>

#include "weightstore/byte_source.h"

namespace weightstore {

// Elements that lie evenly apart in every dimension.
struct StridedElements {
  struct Dim {
    std::uint64_t count;
    std::int64_t stride;  // bytes from one element to the next: of any sign, 0 where one element is repeated
  };
  std::uint64_t begin = 0;       // of element [0, 0, ...], in the source
  std::uint64_t item_bytes = 1;  // bytes of an element: 1 to 16
  std::vector<Dim> dims;         // outermost first

  // An element is one number or several (a complex element is two). The bytes of each number are reversed where
  // `swap_bytes`, the size of a number, is 2, 4 or 8.
  std::uint64_t swap_bytes = 1;
  // The sign bit of numbers of `sign_bytes` (1, 2, 4 or 8) bytes is changed: of the even numbers of an element, of the
  // odd ones (imaginary parts), or of both.
  std::uint64_t sign_bytes = 1;
  bool change_even_signs = false;
  bool change_odd_signs = false;
};

// Makes the bytes of the elements in row-major order, any range of them. Immutable, so that any number of threads may
// read at once.
class StridedReader {
 public:
  // The caller has checked that all elements lie inside the source to read from, and that their bytes can be counted.
  explicit StridedReader(StridedElements elements);

  // Bytes of all elements.
  std::uint64_t size() const { return count_ * elements_.item_bytes; }
  // Where element [0, 0, ...] begins.
  std::uint64_t begin() const { return elements_.begin; }
  // True when the bytes are a range of the source as they are.
  bool is_contiguous() const;

  // Fills `out` with the bytes from `offset` on; the range must lie inside [0, size()). The reader visits the source in
  // ascending order, reads bytes that lie together by one read, reads through small gaps, and reads repeated elements
  // once. It takes up to 1 MiB of memory besides `out`. Throws what the source throws.
  void read(const ByteSource& source, std::uint64_t offset, MutableBytes out) const;

 private:
  StridedElements elements_;
  std::uint64_t count_;
};

}  // namespace weightstore
