#pragma once

// Whether a tensor's elements lie in memory that can be read and written. Not every at::Tensor has any: a DTensor or
// FakeTensor only describes values, and a storage can be freed under a tensor.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace weightstore::torch_bridge {

// nullopt when the elements lie in memory of the tensor's own: then its data pointer, sizes and strides describe them,
// on its device. Otherwise what the tensor is instead and what to pass in its place, as the rest of a sentence about
// it: "is on the meta device, ...". Tensors without elements need no memory. Cheap: looks at no element.
std::optional<std::string> why_no_memory(const at::Tensor& tensor);

// Throws Error(kInvalidArgument) naming the tensor when why_no_memory() has an answer.
void require_memory(const std::string& name, const at::Tensor& tensor);

}  // namespace weightstore::torch_bridge
