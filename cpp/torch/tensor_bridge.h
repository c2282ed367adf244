#pragma once

// Between the library's tensors and torch's.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weightstore/reader.h"
#include "weightstore/writer.h"

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

// Name, type and shape as a file has them. Throws Error(kInvalidArgument) for a tensor without memory
// (element_memory.h) and for a type that no file format has. python/weightstore/_tensors/frameworks.py raises the same
// kinds of errors.
TensorInfo info_of(const std::string& name, const at::Tensor& tensor);

// The same for a SafeTensors file: throws Error(kInvalidArgument) also for a type that only other formats have. Finds
// everything that can be wrong with a tensor to be saved, without copying the tensor.
TensorInfo checked_for_safetensors(const std::string& name, const at::Tensor& tensor);

// True when the tensor's elements lie in CPU memory in row-major order, as they are.
bool is_plain_memory(const at::Tensor& tensor);

// The tensor as the Writer takes it, by value whatever its strides. Memory on the CPU is not copied: it is read when it
// is written, and kept alive until then. Throws as checked_for_safetensors() does.
NewTensor new_tensor(const std::string& name, const at::Tensor& tensor);

}  // namespace weightstore::torch_bridge
