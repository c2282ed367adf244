#pragma once

// The header of an .npy array: which elements follow, and in which order. docs/formats.md, "NumPy".

#include <cstdint>
#include <functional>

#include "codec/memory_budget.h"
#include "weightstore/dtype.h"
#include "weightstore/read_options.h"
#include "weightstore/tensor.h"

namespace weightstore::numpy {

// As many bytes of header as numpy reads without being told to trust the file.
inline constexpr std::uint64_t kMaxHeaderBytes = 10'000;

// As many dimensions as numpy's arrays have.
inline constexpr std::uint64_t kMaxRank = 64;

struct ArrayHeader {
  DType dtype = DType::kU8;
  bool is_swapped = false;  // the bytes of its numbers have the other order than this machine's
  bool is_fortran = false;  // the first dimension is the innermost
  Shape shape;
  std::uint64_t data_begin = 0;  // where the elements begin, behind the header
  std::uint64_t nbytes = 0;      // of the elements
};

// Fills `out` with the first bytes of an array's file.
using ReadFirst = std::function<void(MutableBytes out)>;

// Reads and checks the header of an array whose file has `size` bytes, and that the file ends where the elements do.
// The header is a Python dict; it is parsed, never evaluated. `memory` is charged for what is read. Throws kCorrupt,
// kLimit, or kUnsupported for elements that are no numbers, naming their type.
ArrayHeader read_array_header(std::uint64_t size, const ReadFirst& read_first, const Limits& limits,
                              MemoryBudget& memory);

}  // namespace weightstore::numpy
