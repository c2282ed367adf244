#pragma once

// Whether the elements of a tensor lie in memory that can be read and written. A DTensor or FakeTensor only describes
// values, and the storage of a tensor can be freed.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace weightstore::torch_bridge {

// nullopt when the elements lie in memory of the tensor: then its data pointer, sizes and strides describe them, on its
// device. Otherwise the reason and what to pass instead, as the end of a sentence about the tensor: "is on the meta
// device, ...". A tensor without elements needs no memory. Cheap: reads no element.
std::optional<std::string> why_no_memory(const at::Tensor& tensor);

// Throws Error(kInvalidArgument) with the name of the tensor when why_no_memory() has an answer; for a tensor on the
// meta device a NoDataError.
void require_memory(const std::string& name, const at::Tensor& tensor);

}  // namespace weightstore::torch_bridge
