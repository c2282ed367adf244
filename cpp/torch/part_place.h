#pragma once

// Where the part of a distributed tensor lies in the whole.

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "weightstore/tensor.h"

namespace weightstore::torch_bridge {

using ShapeDict = c10::Dict<std::string, std::vector<std::int64_t>>;

struct PartPlace {
  Shape whole;  // in elements as files count them
  Shape begin;
};

// The place of `part`, whose whole shape and first indices are in the dicts as torch counts them. Throws
// Error(kInvalidArgument) if it is not in both, or has other numbers of dimensions than the part.
PartPlace part_place(const std::string& name, const at::Tensor& part, const ShapeDict& wholes, const ShapeDict& begins);

}  // namespace weightstore::torch_bridge
