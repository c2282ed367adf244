#pragma once

// Targets of a load that are not row-major on the CPU: they are loaded by way of a copy that is.

#include <ATen/core/Tensor.h>

#include <set>
#include <span>
#include <string>

namespace weightstore::torch_bridge {

struct StagedTarget {
  std::string name;
  at::Tensor target;
  at::Tensor copy;  // row-major on the CPU
};

struct DirectTarget {
  std::string name;
  at::Tensor target;  // row-major on the CPU
};

// Copies what was loaded into the targets; a target that is not in `loaded` is not touched. Targets may share memory
// with each other where they were loaded with equal values. Otherwise throws Error(kInvalidArgument) naming two of
// them; what they share has then values of both.
void put_back(std::span<const StagedTarget> staged, std::span<const DirectTarget> direct,
              const std::set<std::string>& loaded);

}  // namespace weightstore::torch_bridge
