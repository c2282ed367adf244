#include "tensor_bridge.h"

#include <torch/version.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "element_memory.h"
#include "weightstore/error.h"

namespace weightstore::torch_bridge {

namespace {

struct TypePair {
  DType dtype;
  std::optional<c10::ScalarType> scalar_type;  // nullopt where torch is too old for it
};

// Types of torch 2.7 and 2.8. `Types` is c10::ScalarType; as a template parameter, so that a missing name is no error.
template <class Types>
constexpr std::optional<Types> e8m0_type() {
  if constexpr (requires { Types::Float8_e8m0fnu; }) {
    return Types::Float8_e8m0fnu;
  } else {
    return std::nullopt;
  }
}
template <class Types>
constexpr std::optional<Types> pair_of_f4_type() {
  if constexpr (requires { Types::Float4_e2m1fn_x2; }) {
    return Types::Float4_e2m1fn_x2;
  } else {
    return std::nullopt;
  }
}

// Where two dtypes share a torch type, the one that a torch tensor is stored as comes first.
constexpr TypePair kTypes[] = {
    {DType::kBool, c10::ScalarType::Bool},
    {DType::kU8, c10::ScalarType::Byte},
    {DType::kI8, c10::ScalarType::Char},
    {DType::kI16, c10::ScalarType::Short},
    {DType::kU16, c10::ScalarType::UInt16},
    {DType::kI32, c10::ScalarType::Int},
    {DType::kU32, c10::ScalarType::UInt32},
    {DType::kI64, c10::ScalarType::Long},
    {DType::kU64, c10::ScalarType::UInt64},
    {DType::kF16, c10::ScalarType::Half},
    {DType::kBF16, c10::ScalarType::BFloat16},
    {DType::kF32, c10::ScalarType::Float},
    {DType::kF64, c10::ScalarType::Double},
    {DType::kC64, c10::ScalarType::ComplexFloat},
    {DType::kC32, c10::ScalarType::ComplexHalf},
    {DType::kC128, c10::ScalarType::ComplexDouble},
    {DType::kF8_E5M2, c10::ScalarType::Float8_e5m2},
    {DType::kF8_E4M3, c10::ScalarType::Float8_e4m3fn},
    {DType::kF8_E8M0, e8m0_type<c10::ScalarType>()},
    {DType::kF8_E4M3FNUZ, c10::ScalarType::Float8_e4m3fnuz},
    {DType::kF8_E5M2FNUZ, c10::ScalarType::Float8_e5m2fnuz},
    {DType::kF4, pair_of_f4_type<c10::ScalarType>()},
    {DType::kFlex32, c10::ScalarType::Float},
    {DType::kBoolU8, c10::ScalarType::Bool},
};

}  // namespace

std::optional<c10::ScalarType> scalar_type_of(DType dtype) {
  for (const TypePair& pair : kTypes) {
    if (pair.dtype == dtype) return pair.scalar_type;
  }
  return std::nullopt;
}

std::optional<DType> dtype_of(c10::ScalarType type) {
  for (const TypePair& pair : kTypes) {
    if (pair.scalar_type == type) return pair.dtype;
  }
  return std::nullopt;
}

c10::ScalarType require_scalar_type(const TensorInfo& info) {
  const auto type = scalar_type_of(info.dtype);
  if (!type) {
    throw Error(ErrorCode::kInvalidArgument, "torch " TORCH_VERSION " has no type for " +
                                                 std::string(name_of(info.dtype)) +
                                                 " elements; read the tensor's bytes instead")
        .in_tensor(info.name);
  }
  return *type;
}

std::vector<std::int64_t> sizes_of(const TensorInfo& info) {
  std::vector<std::int64_t> sizes;
  // torch multiplies sizes into strides with zeros counted as ones: that product must fit too.
  std::int64_t product = 1;
  for (const std::uint64_t dim : info.shape) {
    const bool fits = dim <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    const auto size = static_cast<std::int64_t>(dim);
    if (!fits || __builtin_mul_overflow(product, std::max<std::int64_t>(size, 1), &product)) {
      throw Error(ErrorCode::kUnsupported, "the shape is too large for torch, which counts in signed 64-bit numbers")
          .in_tensor(info.name);
    }
    sizes.push_back(size);
  }
  if (info.dtype == DType::kF4) {
    if (sizes.empty() || sizes.back() % 2 != 0) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "torch stores 4-bit floats in pairs, so the last dimension must be even; read the tensor's bytes instead")
          .in_tensor(info.name);
    }
    sizes.back() /= 2;
  }
  return sizes;
}

TensorInfo info_of(const std::string& name, const at::Tensor& tensor) {
  require_memory(name, tensor);
  const auto dtype = dtype_of(tensor.scalar_type());
  if (!dtype) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("a file cannot hold elements of torch's type ") + c10::toString(tensor.scalar_type()))
        .in_tensor(name);
  }
  TensorInfo info;
  info.name = name;
  info.dtype = *dtype;
  for (const std::int64_t size : tensor.sizes()) info.shape.push_back(static_cast<std::uint64_t>(size));
  if (*dtype == DType::kF4) {
    if (info.shape.empty()) {
      info.shape.push_back(2);
    } else {
      info.shape.back() *= 2;
    }
  }
  return info;
}

bool is_plain_memory(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() && !tensor.is_conj() &&
         !tensor.is_neg();
}

TensorInfo checked_for_safetensors(const std::string& name, const at::Tensor& tensor) {
  TensorInfo info = info_of(name, tensor);
  if (!in_safetensors(info.dtype)) {
    throw Error(ErrorCode::kInvalidArgument, "SafeTensors cannot hold elements of " + std::string(name_of(info.dtype)) +
                                                 (tensor.is_complex() ? "; save torch.view_as_real() of it" : ""))
        .in_tensor(name);
  }
  return info;
}

NewTensor new_tensor(const std::string& name, const at::Tensor& tensor) {
  const TensorInfo info = checked_for_safetensors(name, tensor);
  const auto owner =
      std::make_shared<const at::Tensor>(tensor.device().is_cpu() ? tensor.detach() : tensor.detach().cpu());
  require_memory(name, *owner);  // a subclass may answer detach() and cpu() with anything
  const auto* data = static_cast<const std::byte*>(owner->const_data_ptr());
  std::shared_ptr<ByteProducer> bytes;
  if (is_plain_memory(*owner)) {
    bytes = resident_bytes({data, static_cast<std::size_t>(owner->nbytes())}, owner);
  } else {
    StridedArray array;
    array.data = data;
    array.item_bytes = owner->element_size();
    for (std::int64_t d = 0; d < owner->dim(); ++d) {
      array.shape.push_back(static_cast<std::uint64_t>(owner->size(d)));
      array.byte_strides.push_back(owner->stride(d) * static_cast<std::int64_t>(array.item_bytes));
    }
    array.negate = owner->is_neg();
    array.conjugate = owner->is_conj();
    if (array.negate || array.conjugate) array.sign_bytes = array.item_bytes / (owner->is_complex() ? 2 : 1);
    bytes = strided_bytes(std::move(array), owner);
  }
  return {name, info.dtype, info.shape, std::move(bytes), std::nullopt, nullptr};
}

}  // namespace weightstore::torch_bridge
