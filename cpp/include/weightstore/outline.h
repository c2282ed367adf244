#pragma once

// What a table of tensors amounts to: totals, shares of the element types, the largest tensors, and subtotals of the
// modules that dotted names tell. Reads no data.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weightstore/tensor.h"

namespace weightstore {

struct Totals {
  std::uint64_t tensors = 0;
  std::uint64_t parameters = 0;  // elements; 2^64 - 1 when there are more
  std::uint64_t nbytes = 0;
};

struct DTypeShare {
  DType dtype = DType::kU8;
  Totals totals;
};

// A module, or a tensor. A module is the part of a name before a dot, so that "a.b.weight" is in the modules "a" and
// "a.b".
struct OutlineNode {
  std::string_view path;  // points into the table
  bool is_tensor = false;
  std::size_t depth = 0;  // the number of parts of the path: 1 for "a"
  Totals totals;
  std::uint64_t dtypes = 0;  // bit 1 << DType for each type
};

struct Outline {
  Totals totals;
  std::vector<DTypeShare> dtypes;    // those with most bytes first
  std::vector<std::size_t> largest;  // numbers of the tensors with most bytes, in this order
  std::vector<OutlineNode> nodes;    // sorted by path; a tensor comes before a module of the same path
};

// `depth`: modules and tensors with at most this many parts in their path are listed; 0 for no nodes. `largest`: how
// many of the largest tensors are named. Needs about 100 bytes of memory for each node. The paths are valid as long as
// the table.
Outline outline_of(const TensorTable& table, std::size_t depth, std::size_t largest);

// A table for people: a line for each of `tensors` (numbers in the table) with name, type, shape and size, in columns.
// `show` makes the text for a name that is not printable ASCII, and its width in columns. A million lines take about
// half a second.
struct ShownName {
  std::string text;
  std::size_t width;
};
std::string tensor_lines(const TensorTable& table, std::span<const std::uint32_t> tensors,
                         const std::function<ShownName(std::string_view name)>& show);

}  // namespace weightstore
