#include "tensor_bridge.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <string>

#include "weightstore/error.h"

namespace weightstore::torch_bridge {

namespace {

struct TypePair {
  DType dtype;
  c10::ScalarType scalar_type;
};

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
    {DType::kF8_E5M2, c10::ScalarType::Float8_e5m2},
    {DType::kF8_E4M3, c10::ScalarType::Float8_e4m3fn},
    {DType::kF8_E8M0, c10::ScalarType::Float8_e8m0fnu},
    {DType::kF8_E4M3FNUZ, c10::ScalarType::Float8_e4m3fnuz},
    {DType::kF8_E5M2FNUZ, c10::ScalarType::Float8_e5m2fnuz},
    {DType::kF4, c10::ScalarType::Float4_e2m1fn_x2},
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
    throw Error(ErrorCode::kUnsupported, "torch has no type for " + std::string(name_of(info.dtype)) +
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
          ErrorCode::kUnsupported,
          "torch stores 4-bit floats in pairs, so the last dimension must be even; read the tensor's bytes instead")
          .in_tensor(info.name);
    }
    sizes.back() /= 2;
  }
  return sizes;
}

at::Tensor read_tensor(const Reader& reader, std::size_t tensor) {
  const TensorInfo info = reader.table()[tensor];
  at::Tensor out = at::empty(sizes_of(info), at::TensorOptions(require_scalar_type(info)));
  reader.read(tensor, {static_cast<std::byte*>(out.mutable_data_ptr()), static_cast<std::size_t>(out.nbytes())});
  return out;
}

}  // namespace weightstore::torch_bridge
