#pragma once

// Between the library's tensors and torch's.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "weightstore/reader.h"

namespace weightstore::torch_bridge {

// The torch type that holds elements of `dtype`, or nullopt when there is none (6-bit floats, 4-byte booleans and
// quantized payloads).
std::optional<c10::ScalarType> scalar_type_of(DType dtype);

// The type that torch tensors of `type` are stored as, or nullopt when no file format has it.
std::optional<DType> dtype_of(c10::ScalarType type);

// As scalar_type_of(), but throws Error(kUnsupported) naming the tensor.
c10::ScalarType require_scalar_type(const TensorInfo& info);

// The sizes of a torch tensor for `info`: its shape, except that torch counts pairs of 4-bit floats. Throws
// Error(kUnsupported) where they do not fit torch's signed sizes.
std::vector<std::int64_t> sizes_of(const TensorInfo& info);

// Copies a tensor into a new torch tensor on the CPU that has nothing to do with the file any more.
at::Tensor read_tensor(const Reader& reader, std::size_t tensor);

}  // namespace weightstore::torch_bridge
